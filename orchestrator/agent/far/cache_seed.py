"""Ops cache_seed and cache_check: make the live compile caches from a snapshot, or say that it cannot be done.

Copied beside their place, each file's hash compared; then one record says that it will be done, and only then do the
old caches leave and the copies get their names. Cut short before that record, the live caches are the old ones; after
it, whoever comes next (the next cache operation, the next launch) carries it through before it does anything else.

Rule: the snapshot is only read. Copies and not hard links: what a compiler writes in place must not reach it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, Tuple

from . import journal, lease, records
from .blobs import NO_SPACE
from .cache_aside import describe_aside, finish, finish_moving, new_name, set_aside, write_intent
from .cache_folders import check_folders, holds_something, nested, nothing_starts, separate
from .copying import copy_hashed, each
from .durable import sync_file_system, sync_path
from .errors import OpError
from .files import remove_below
from .manifest import DIR, FILE, Entry
from .records import SEEDING, Record
from .snapshots import (
    INTENT,
    MAKING,
    SEEDED,
    SNAPSHOTS,
    read_files,
    read_manifest,
    snapshot_folder,
    unfinished,
)


def cache_seed(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, name, folders {cache: absolute path}, replace (set what is there aside as a snapshot), who. Needs
    the lease on base.

    {"snapshot", "bytes", "files", "aside": the snapshot that holds what was there, or None}. Raises OpError: busy,
    missing, damaged (naming the file), not_empty (without replace), other_layout, bad_folder, disk_full, no_lease: then
    the live caches are as they were.
    """
    base = records.base_folder(params)
    lease.require(base)
    folders = check_folders(base, params["folders"])
    source = snapshot_folder(base, params.get("name"))
    files, targets = _layout(source, folders)
    check = channel.check
    with nothing_starts(base), journal.begin(base, "seed_cache", params.get("who"), {"snapshot": params["name"]}):
        finish_seeding(base, check)
        full = _full(folders)
        if full and not params.get("replace"):
            raise OpError("not_empty", "the %s cache %s is not empty" % next(iter(full.items())))
        _make_partials(source, files, targets, check)
        for name in unfinished(base):
            finish(base, name, check)  # what an earlier clear left in its place must not take the new cache with it
        seeding = {"snapshot": params["name"], "targets": targets, "folders": folders, "aside": None}
        if _full(folders):
            seeding.update(aside=new_name(base), who=params.get("who"), why="seed")
        records.write_record(base, SEEDING, seeding)  # from here on whoever comes next carries it through
        finish_seeding(base, check)
    entries = [entry for found in files.values() for entry in found]
    return {
        "snapshot": params["name"],
        "bytes": sum(entry.size for entry in entries),
        "files": sum(1 for entry in entries if entry.sha256),
        "aside": seeding["aside"],
    }


def finish_seeding(base: str, check: Callable[[], None] = lambda: None, *, describe: bool = True) -> None:
    """Carry through what was begun: all copies are complete and on disk. Each step can be taken again.

    Only where nothing can start meanwhile. describe: whether the old caches become a snapshot now; else the next clear
    does that, for it reads all of them. Raises OSError, OpError("io")."""
    seeding = records.read_record(base, SEEDING)
    if seeding is None:
        return
    if "broken" in seeding:
        raise OpError("io", "%s cannot be read; it says what a seeding was to do" % seeding["broken"])
    aside = seeding["aside"]
    if aside is not None:
        _leave(base, aside, seeding, check)
    _make_way(base, seeding)
    for path in seeding["targets"].values():
        if os.path.isdir(partial(path)):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
            os.rename(partial(path), path)
            sync_path(os.path.dirname(path))
    records.write_record(base, SEEDED, {"snapshot": seeding["snapshot"], "at": time.time()})
    os.unlink(os.path.join(base, SEEDING))
    sync_path(os.path.dirname(os.path.join(base, SEEDING)))
    for name in unfinished(base) if describe else ():
        if records.read_record(os.path.join(base, SNAPSHOTS, MAKING + name), INTENT) is not None:
            describe_aside(base, name, check)


def _full(folders: Dict[str, str]) -> Dict[str, str]:
    return {kind: path for kind, path in separate(folders).items() if holds_something(path)}


def _leave(base: str, name: str, seeding: Record, check: Callable[[], None]) -> None:
    """Once, however often it is begun."""
    making = os.path.join(base, SNAPSHOTS, MAKING + name)
    if os.path.isdir(snapshot_folder(base, name)):
        return
    if records.read_record(making, INTENT) is None:
        if os.path.isdir(making):
            finish(base, name, check)  # there is nothing in it yet
        write_intent(base, name, _full(seeding["folders"]), seeding["folders"], seeding)
    set_aside(base, name)


def _make_way(base: str, seeding: Record) -> None:
    """What somebody wrote meanwhile where a copy goes, a training that orch did not start say: a snapshot, too.

    Only a folder whose copy has not got its name yet: then no intent can take the new cache."""
    finish_moving(base)
    targets = seeding["targets"]
    written = {kind: path for kind, path in targets.items() if os.path.isdir(partial(path)) and holds_something(path)}
    if written:
        name = new_name(base)
        write_intent(base, name, written, seeding["folders"], dict(seeding, why="seed"))
        set_aside(base, name)


def _make_partials(
    source: str, files: Dict[str, Tuple[Entry, ...]], targets: Dict[str, str], check: Callable[[], None]
) -> None:
    """A compared copy of each cache beside its place, on disk. On any failure there are none."""
    try:
        for path in targets.values():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            remove_below(os.path.dirname(path), partial(path))  # of a seeding that was cut short
        _require_room(targets, files)
        for kind, path in targets.items():
            _copy(os.path.join(source, kind), partial(path), files[kind], kind, check)
            sync_file_system(partial(path))
    except BaseException as error:
        for path in targets.values():
            with contextlib.suppress(OSError, OpError):
                remove_below(os.path.dirname(path), partial(path))
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise OpError("disk_full", "the disk is full; the caches are as they were", str(error)) from error
        raise


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


def partial(path: str) -> str:
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
        if entry.kind == DIR:
            os.mkdir(os.path.join(target, entry.path), 0o755)
        elif entry.target:
            os.symlink(entry.target, os.path.join(target, entry.path))

    def copy(entry: Entry) -> None:
        check()
        _copy_file(os.path.join(source, entry.path), os.path.join(target, entry.path), entry, kind + "/" + entry.path)

    each(copy, [entry for entry in entries if entry.kind == FILE])


def _copy_file(source: str, target: str, entry: Entry, name: str) -> None:
    try:
        if os.lstat(source).st_size != entry.size:  # what is damaged may be of any size
            raise OpError("damaged", "the snapshot is damaged: %s" % name)
        sha256, before, _ = copy_hashed(source, target, entry.mode)
    except OSError as error:
        if error.filename != source:
            raise
        raise OpError("damaged", "the snapshot is damaged: %s" % name, str(error)) from error
    if sha256 != entry.sha256 or before.st_size != entry.size:
        raise OpError("damaged", "the snapshot is damaged: %s" % name)
