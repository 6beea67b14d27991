"""Op cache_clear: set the live compile caches aside as a snapshot, one rename a folder; nothing is deleted."""

from __future__ import annotations

from typing import Any

from . import journal, lease, records
from .cache_aside import NOTHING, describe_aside, finish, new_name, set_aside, write_intent
from .cache_folders import check_folders, holds_something, nothing_starts, separate
from .cache_seed import finish_seeding
from .records import Record
from .snapshots import unfinished


def cache_clear(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, folders {cache: absolute path}, who. Needs the lease on base.

    {"snapshot": name or None (the caches were empty), "bytes", "files", "odd": [what could not be described],
    "kept": [folders beside their old place], "finished": [names of earlier clears that were cut short]}
    Raises OpError: busy (a run is live or starting), bad_folder, no_lease, io.
    """
    base = records.base_folder(params)
    lease.require(base)
    folders = check_folders(base, params["folders"])
    with journal.begin(base, "clear_cache", params.get("who"), {}) as entry:
        with nothing_starts(base):
            finish_seeding(base, channel.check)
            finished = [finish(base, name, channel.check) for name in unfinished(base)]
            there = {kind: path for kind, path in separate(folders).items() if holds_something(path)}
            if there:
                name = new_name(base)
                write_intent(base, name, there, folders, params)
                set_aside(base, name)
                entry.note(snapshot=name)
        done = describe_aside(base, name, channel.check) if there else dict(NOTHING)
    return dict(done, finished=[earlier["snapshot"] for earlier in finished if earlier["snapshot"]])
