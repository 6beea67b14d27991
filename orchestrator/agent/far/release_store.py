"""Where releases live: <store>/<tree hash>/ and its record <store>/<tree hash>.json beside it.

Rule: a folder got that name by rename after everything in it was verified and synced, and its record was there
before; so a name in the store means a whole release, old or new, whenever the machine was switched off.
"""

from __future__ import annotations

import json
import os
import time

from .durable import sync_path, write_synced
from .errors import OpError
from .files import remove_below
from .manifest import FILE, Entry, ManifestError, check_entries, parse

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Sequence, Tuple

INCOMING = ".incoming"
RECORD_SCHEMA = 1


def record_path(release: str) -> str:
    return release.rstrip("/") + ".json"


def is_complete(release: str) -> bool:
    return os.path.isdir(release) and os.path.isfile(record_path(release))


def write_record(release: str, name: str, entries: Sequence[Entry], provenance: Any) -> None:
    """By rename, synced. Raises OSError."""
    record = {
        "schema": RECORD_SCHEMA,
        "tree_hash": name,
        "pushed_at": time.time(),
        "provenance": provenance,
        "files": sum(entry.kind == FILE for entry in entries),
        "bytes": sum(entry.size for entry in entries),
        "entries": [list(entry) for entry in entries],
    }
    final = record_path(release)
    staging = os.path.join(os.path.dirname(final), INCOMING, os.path.basename(final))
    write_synced(staging, json.dumps(record, separators=(",", ":")).encode("ascii"))
    os.replace(staging, final)
    sync_path(os.path.dirname(final))


def point(link: str, target: str, staging: str) -> None:
    """Make or change a link by rename; the caller syncs the folder. Raises OSError."""
    if os.path.lexists(staging):
        os.unlink(staging)
    os.symlink(target, staging)
    os.rename(staging, link)


def remove_tree(store: str, name: str) -> None:
    """Aside first: half a tree must not keep a whole one's name. Raises OSError, OpError."""
    os.makedirs(os.path.join(store, INCOMING), exist_ok=True)
    aside = os.path.join(store, INCOMING, "removed-" + name)
    os.rename(os.path.join(store, name), aside)
    os.unlink(record_path(os.path.join(store, name)))
    remove_below(store, aside)


def read_record(release: str) -> Tuple[Dict[str, Any], Tuple[Entry, ...]]:
    """Raises OpError("missing") or OpError("bad_record")."""
    path = record_path(release)
    try:
        with open(path, encoding="ascii") as stream:
            record = json.load(stream)
        return record, check_entries(parse(record["entries"]))
    except FileNotFoundError as error:
        raise OpError("missing", "%s: there is no such release record" % path) from error
    except (OSError, ValueError, KeyError, TypeError, ManifestError) as error:
        raise OpError("bad_record", "%s cannot be read" % path, str(error)) from error


def release_names(store: str) -> list[str]:
    """Complete ones, sorted."""
    if not os.path.isdir(store):
        return []
    return sorted(name for name in os.listdir(store) if is_complete(os.path.join(store, name)))


def newest_first(store: str) -> list[str]:
    """Complete ones, by when they were pushed. Raises OpError("bad_record")."""
    pushed = {name: float(read_record(os.path.join(store, name))[0]["pushed_at"]) for name in release_names(store)}
    return sorted(pushed, key=lambda name: (-pushed[name], name))
