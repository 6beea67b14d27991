"""Ops cache_save and cache_drop: keep a copy of the live compile caches under a name; let one go.

Rule: the live caches are only read. A file that a kept snapshot holds already, byte for byte and with the same time,
is linked and not stored again: nothing ever writes into a snapshot. Copies from the live caches are never links,
because a compiler may write in place.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Tuple

from . import journal, lease, records
from .blobs import NO_SPACE
from .cache_aside import finish_moving
from .cache_census import snapshot_devices
from .cache_folders import check_folders, holds_something, nested, nothing_starts, separate
from .cache_makers import maker, makers, runs_of
from .cache_seed import finish_seeding
from .copying import copy_hashed, each
from .durable import sync_file_system, sync_path
from .errors import OpError
from .files import remove_below
from .manifest import DIR, FILE, Entry, ManifestError, check_entries
from .records import Record
from .scan import hash_file, walk_fit
from .snapshots import (
    ARRIVING,
    DROPPING,
    MAKING,
    SAVING,
    SEEDED,
    SNAPSHOTS,
    Files,
    arriving,
    kept_files,
    names,
    snapshot_folder,
    totals,
    write_manifest,
)

Pool = Dict[str, List[Tuple[str, Entry]]]
"""`cache/path` -> (file in a snapshot, its entry), of the newest snapshots first."""


class _ChangedError(Exception):
    pass


def cache_save(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, name, folders {cache: absolute path}, who, identity (of a fingerprint of now; for caches whose
    makers are not known). Needs the lease on base.

    {"snapshot", "bytes", "files", "linked": files that another snapshot held, "odd": [what could not be described]}
    Raises OpError: busy (a run is live, or somebody wrote into the caches meanwhile), conflict (the name is taken),
    missing (the caches are empty), bad_folder, disk_full, no_lease. Then there is no snapshot of that name.
    """
    base = records.base_folder(params)
    lease.require(base)
    folders = check_folders(base, params["folders"])
    name = params.get("name")
    final = snapshot_folder(base, name)
    if os.path.lexists(final) or os.path.lexists(os.path.join(base, SNAPSHOTS, MAKING + str(name))):
        raise OpError("conflict", "there is a snapshot %s already" % name, final)
    with nothing_starts(base), journal.begin(base, "save_cache", params.get("who"), {"snapshot": name}):
        remove_leftovers(base)
        finish_seeding(base, channel.check)
        finish_moving(base)  # or what is left in its place would be kept as if it were the cache
        there = {kind: path for kind, path in separate(folders).items() if holds_something(path)}
        if not there:
            raise OpError("missing", "the compile caches are empty; there is nothing to save")
        saving = os.path.join(base, SNAPSHOTS, SAVING + str(name))
        try:
            manifest, linked = _save(base, saving, there, folders, params, channel.check)
            os.rename(saving, final)
            sync_path(os.path.dirname(final))
        except BaseException as error:
            with contextlib.suppress(OSError, OpError):
                remove_below(os.path.join(base, SNAPSHOTS), saving)
            raise _told(error) from error
    return dict(totals(manifest), snapshot=name, linked=linked, odd=manifest["odd"])


def cache_drop(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, name, who. Needs the lease on base. {"snapshot"}. Raises OpError: missing, no_lease.

    Of one that has not all come in, what has."""
    base = records.base_folder(params)
    lease.require(base)
    folder = snapshot_folder(base, params.get("name"))
    if not os.path.lexists(folder) and params["name"] in arriving(base):
        remove_below(os.path.join(base, SNAPSHOTS), os.path.join(base, SNAPSHOTS, ARRIVING))
        return {"snapshot": params["name"]}
    if not os.path.isdir(folder) or os.path.islink(folder):
        raise OpError("missing", "there is no snapshot %s" % params["name"], folder)
    top = os.path.join(base, SNAPSHOTS)
    with journal.begin(base, "drop_cache", params.get("who"), {"snapshot": params["name"]}):
        remove_leftovers(base)
        os.rename(folder, os.path.join(top, DROPPING + params["name"]))  # from now on it is no snapshot
        sync_path(top)
        remove_leftovers(base)
    return {"snapshot": params["name"]}


def remove_leftovers(base: str) -> None:
    """Of saves and drops that were cut short: copies, and what was to go. Only whoever has the lease may."""
    for name in names(base):
        if name.startswith((SAVING, DROPPING)):
            remove_below(os.path.join(base, SNAPSHOTS), os.path.join(base, SNAPSHOTS, name))


def _told(error: BaseException) -> BaseException:
    if isinstance(error, _ChangedError):
        return OpError("busy", "the caches were written to while they were saved; nothing was kept", str(error))
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return OpError("disk_full", "the disk is full; nothing was kept", str(error))
    return error


def _save(
    base: str, saving: str, there: Dict[str, str], folders: Dict[str, str], params: Record, check: Callable[[], None]
) -> Tuple[Record, int]:
    """(its manifest, how many files are links)"""
    os.makedirs(saving, mode=0o700)
    pool = _pool(base)
    files: Files = {}
    odd: List[str] = []
    linked = 0
    for kind, path in there.items():
        copy = _Copy(kind, path, os.path.join(saving, kind), pool, check)
        files[kind] = copy.run()
        odd += [kind + "/" + name for name in copy.odd]
        linked += copy.linked
    made_by = makers(base, folders)
    now = maker(params.get("identity"))
    if not made_by and now is not None:
        made_by = [dict(now, run_id=None)]
    about = {
        "name": params["name"],
        "made_at": time.time(),
        "saved": True,
        "who": params.get("who"),
        "why": "save",
        "runs": runs_of(base, folders),
        "seeded": records.read_record(base, SEEDED),
        "nested": nested(folders),
        "made_by": made_by,
        "kept": [],
        "devices": snapshot_devices(saving, files, nested(folders), check),
    }
    manifest = write_manifest(saving, about, there, files, odd)
    sync_file_system(saving)
    return manifest, linked


def _pool(base: str) -> Pool:
    found: Pool = {}
    for kind, place, entry in kept_files(base):
        found.setdefault(kind + "/" + entry.path, []).append((place, entry))
    return found


class _Copy:
    """One cache's folder -> one folder of the snapshot."""

    def __init__(self, kind: str, source: str, target: str, pool: Pool, check: Callable[[], None]) -> None:
        self.linked = 0
        self.odd: List[str] = []
        self._kind = kind
        self._source = source
        self._target = target
        self._pool = pool
        self._check = check

    def run(self) -> Tuple[Entry, ...]:
        """Raises OSError, _ChangedError."""
        try:
            listed, self.odd = walk_fit(self._source, (), check=self._check)
            os.mkdir(self._target, 0o700)
            entries = [self._take(entry) for entry in sorted(listed) if entry.kind != FILE]
            for known, entry in each(self._take_file, [entry for entry in sorted(listed) if entry.kind == FILE]):
                entries.append(entry)
                self.linked += known
            again, _ = walk_fit(self._source, (), check=self._check)
        except FileNotFoundError as error:
            raise _ChangedError("%s is gone" % error.filename) from error
        changed = set(listed) ^ set(again)
        if changed:
            raise _ChangedError(self._kind + "/" + min(changed).path)
        return check_entries(entries)

    def _take(self, entry: Entry) -> Entry:
        target = os.path.join(self._target, entry.path)
        if entry.kind == DIR:
            os.mkdir(target, 0o755)
            return entry
        os.symlink(entry.target, target)
        return entry

    def _take_file(self, entry: Entry) -> Tuple[bool, Entry]:
        """(whether it is a link to what a snapshot holds, the entry with its hash)"""
        self._check()
        source, target = os.path.join(self._source, entry.path), os.path.join(self._target, entry.path)
        known = self._linked(source, target, entry)
        if known is not None:
            return True, known
        sha256, before, after = copy_hashed(source, target, entry.mode)
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if not same or before.st_size != entry.size:
            raise _ChangedError(self._kind + "/" + entry.path)
        return False, entry._replace(sha256=sha256)

    def _linked(self, source: str, target: str, entry: Entry) -> Entry | None:
        """The entry, if a snapshot holds this very file and it was linked. Both are read: neither is trusted."""
        kept_here = self._pool.get(self._kind + "/" + entry.path)
        if not kept_here:
            return None
        facts = os.lstat(source)
        for place, kept in kept_here:
            if kept._replace(sha256="") != entry:
                continue
            try:
                there = os.lstat(place)
                as_told = (there.st_mtime_ns, there.st_size) == (facts.st_mtime_ns, kept.size)
                if as_told and hash_file(source) == hash_file(place) == (kept.sha256, kept.size):
                    os.link(place, target, follow_symlinks=False)
                    return kept
            except (OSError, ManifestError):
                continue  # then it is copied
        return None
