"""Ops cache_seed and cache_check: make the live compile caches from a snapshot, or say that it cannot be done.

Copied, each file's hash compared, then renamed in.

Rule: the snapshot is only read. Copies and not hard links: what a compiler writes in place must not reach it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import Any, Callable, Dict, Tuple

from . import journal, lease, records
from .cache_folders import check_folders, holds_something, nested, nothing_starts, separate
from .durable import sync_path
from .errors import OpError
from .files import remove_below
from .manifest import DIR, Entry
from .records import Record
from .snapshots import SEEDED, read_files, read_manifest, snapshot_folder

READ_BYTES = 1024 * 1024


def cache_seed(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, name, folders {cache: absolute path}. Needs the lease on base, and empty live caches.

    {"snapshot", "bytes", "files"}. Raises OpError: busy, missing, damaged (naming the file), not_empty, other_layout,
    bad_folder, disk_full, no_lease.
    """
    base = records.base_folder(params)
    lease.require(base)
    folders = check_folders(base, params["folders"])
    source = snapshot_folder(base, params.get("name"))
    files, targets = _layout(source, folders)
    with nothing_starts(base), journal.begin(base, "seed_cache", None, {"snapshot": params["name"]}):
        for kind, path in targets.items():
            if holds_something(path):
                raise OpError("not_empty", "the %s cache %s is not empty" % (kind, path))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            remove_below(os.path.dirname(path), _partial(path))  # of a seeding that was cut short
        _require_room(targets, files)
        for kind, path in targets.items():
            _copy(os.path.join(source, kind), _partial(path), files[kind], kind, channel.check)
        for path in targets.values():
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
            os.rename(_partial(path), path)
            sync_path(os.path.dirname(path))
        records.write_record(base, SEEDED, {"snapshot": params["name"], "at": time.time()})
    entries = [entry for found in files.values() for entry in found]
    return {
        "snapshot": params["name"],
        "bytes": sum(entry.size for entry in entries),
        "files": sum(1 for entry in entries if entry.sha256),
    }


def cache_check(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, folders {cache: absolute path}, seed (a snapshot's name, or None). Looks only.

    Raises what a clearing of these folders, and a seeding from that snapshot, would be refused for: OpError bad_folder,
    missing, other_layout, disk_full.
    """
    base = records.base_folder(params)
    folders = check_folders(base, params["folders"])
    if params.get("seed") is not None:
        files, targets = _layout(snapshot_folder(base, params["seed"]), folders)
        _require_room(targets, files)
    return {}


def _layout(source: str, folders: Dict[str, str]) -> Tuple[Dict[str, Tuple[Entry, ...]], Dict[str, str]]:
    """What the snapshot holds of each cache, and where that goes. Raises OpError("other_layout")."""
    files = read_files(source)
    targets = {kind: path for kind, path in separate(folders).items() if kind in files}
    if sorted(targets) != sorted(files) or nested(folders) != read_manifest(source).get("nested"):
        raise OpError("other_layout", "snapshot %s was made of other cache folders" % os.path.basename(source))
    return files, targets


def _partial(path: str) -> str:
    return path + ".orch-seeding"


def _require_room(targets: Dict[str, str], files: Dict[str, Tuple[Entry, ...]]) -> None:
    """Raises OpError("disk_full")."""
    for kind, path in targets.items():
        folder = os.path.dirname(path)
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        found = os.statvfs(folder)
        wanted, free = sum(entry.size for entry in files[kind]), found.f_bavail * found.f_frsize
        if wanted > free:
            raise OpError("disk_full", "the %s cache needs %d bytes, %d are free" % (kind, wanted, free))


def _copy(source: str, target: str, entries: Tuple[Entry, ...], kind: str, check: Callable[[], None]) -> None:
    os.mkdir(target, 0o700)
    for entry in entries:  # sorted: a folder comes before what is in it
        path = os.path.join(target, entry.path)
        if entry.kind == DIR:
            os.mkdir(path, 0o755)
        elif entry.target:
            os.symlink(entry.target, path)
        else:
            check()
            _copy_file(os.path.join(source, entry.path), path, entry, kind + "/" + entry.path)


def _copy_file(source: str, target: str, entry: Entry, name: str) -> None:
    digest = hashlib.sha256()
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise OpError("damaged", "the snapshot is damaged: %s" % name, str(error)) from error
    with os.fdopen(handle, "rb") as stream, open(target, "xb") as copy:
        while True:
            data = stream.read(READ_BYTES)
            if not data:
                break
            digest.update(data)
            copy.write(data)
        times = os.fstat(stream.fileno())
    if digest.hexdigest() != entry.sha256:
        raise OpError("damaged", "the snapshot is damaged: %s" % name)
    os.chmod(target, entry.mode)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))  # ninja compares them
