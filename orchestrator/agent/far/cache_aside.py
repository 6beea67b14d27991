"""The steps that set the live compile caches aside as a snapshot, one rename a folder; nothing is deleted.

Order: the intent is on disk before the first rename; then every folder leaves its place (in constant time); then
what could not be renamed over (another file system) is copied and verified; then the snapshot is described and
gets its name. Whoever finds an intent finishes it: each step can be taken again.
Rule: never the only copy: a folder that was copied is removed only once the copy holds the same files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from typing import Callable, Dict, List

from . import records
from .cache_census import snapshot_devices
from .cache_folders import holds_something, nested
from .cache_makers import makers, runs_of
from .durable import sync_path
from .errors import OpError
from .files import remove_below
from .manifest import ManifestError
from .records import Record
from .scan import scan_fit
from .snapshots import (
    INTENT,
    MAKING,
    SEEDED,
    SNAPSHOTS,
    describe,
    snapshot_folder,
    totals,
    unfinished,
    write_manifest,
)

NOTHING: Record = {"snapshot": None, "bytes": 0, "files": 0, "odd": [], "kept": []}


def beside(path: str, name: str) -> str:
    return "%s.orch-aside-%s" % (path, name)


def write_intent(base: str, name: str, there: Dict[str, str], folders: Dict[str, str], params: Record) -> None:
    making = os.path.join(base, SNAPSHOTS, MAKING + name)
    os.makedirs(making, mode=0o700)
    intent = {
        "name": name,
        "at": time.time(),
        "who": params.get("who"),
        "why": params.get("why"),
        "folders": there,
        "nested": nested(folders),
        "runs": runs_of(base, folders),
        "seeded": records.read_record(base, SEEDED),
        "made_by": makers(base, folders),
    }
    records.write_record(making, INTENT, intent)
    sync_path(os.path.dirname(making))


def set_aside(base: str, name: str) -> None:
    """Every cache leaves its place: into the snapshot, or beside itself where a rename cannot reach the snapshot."""
    making = os.path.join(base, SNAPSHOTS, MAKING + name)
    for kind, path in (records.read_record(making, INTENT) or {})["folders"].items():
        inside = os.path.join(making, kind)
        if os.path.lexists(inside) or os.path.lexists(beside(path, name)) or not holds_something(path):
            continue
        try:
            os.rename(path, inside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            os.rename(path, beside(path, name))
        sync_path(os.path.dirname(path))
        sync_path(making)


def finish_moving(base: str) -> None:
    """What clears that were cut short have not moved yet, so that nobody uses the rest of a cache: in constant time.

    The next clear describes it. Only where nothing can start meanwhile. Raises OSError."""
    for name in unfinished(base):
        intent = records.read_record(os.path.join(base, SNAPSHOTS, MAKING + name), INTENT) or {}
        if isinstance(intent.get("folders"), dict):
            set_aside(base, name)


def describe_aside(base: str, name: str, check: Callable[[], None]) -> Record:
    """Fetch what was left beside, describe all of it, give it its name."""
    making = os.path.join(base, SNAPSHOTS, MAKING + name)
    intent = records.read_record(making, INTENT) or {}
    kept = [path for kind, path in intent["folders"].items() if not _fetch(making, kind, path, check)]
    kinds = [kind for kind in intent["folders"] if os.path.isdir(os.path.join(making, kind))]
    if not kinds:  # cut short before the first rename, and nothing is there any more
        remove_below(os.path.dirname(making), making)
        return dict(NOTHING)
    files, odd = describe(making, kinds, check)
    nested_in = dict(intent.get("nested") or {})
    about = {"name": name, "made_at": intent["at"], "kept": [beside(path, name) for path in kept]}
    about["devices"] = snapshot_devices(making, files, nested_in, check)
    about.update({word: intent.get(word) for word in ("who", "why", "runs", "seeded", "nested", "made_by")})
    manifest = write_manifest(making, about, {kind: intent["folders"][kind] for kind in kinds}, files, odd)
    # Only if nothing was seeded since: a clear that was cut short may be finished much later.
    if intent.get("seeded") is not None and records.read_record(base, SEEDED) == intent["seeded"]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(base, SEEDED))
    os.rename(making, snapshot_folder(base, name))
    sync_path(os.path.dirname(making))
    return dict(totals(manifest), snapshot=name, odd=odd, kept=manifest["kept"])


def _fetch(making: str, kind: str, path: str, check: Callable[[], None]) -> bool:
    """Copy a folder that lies beside its old place into the snapshot, compare, remove it. False: it is kept."""
    name = os.path.basename(making)[len(MAKING) :]
    aside, copied = beside(path, name), "%s.orch-copied-%s" % (path, name)
    if not os.path.isdir(os.path.dirname(path)):  # gone with all that was beside it
        return True
    remove_below(os.path.dirname(path), copied)
    if not os.path.isdir(aside):
        return True
    inside = os.path.join(making, kind)
    told, odd = scan_fit(aside, (), check=check)
    if not os.path.isdir(inside):
        partial = inside + ".partial"
        remove_below(making, partial)
        shutil.copytree(aside, partial, symlinks=True, ignore=_special)
        _sync_tree(partial)
        if scan_fit(partial, (), check=check)[0] != told:
            raise OpError("io", "the copy of %s is not what it was copied from; both are kept" % aside)
        os.rename(partial, inside)
        sync_path(making)
    elif scan_fit(inside, (), check=check)[0] != told:
        raise OpError("io", "%s and its copy differ; both are kept" % aside, inside)
    if odd:
        return False
    os.rename(aside, copied)  # under a name that says it may go, since removing can be cut short too
    remove_below(os.path.dirname(path), copied)
    return True


def _special(folder: str, names: List[str]) -> List[str]:
    """Sockets and pipes have no content; reading one could wait for ever."""
    paths = [os.path.join(folder, name) for name in names]
    return [
        os.path.basename(path)
        for path in paths
        if not (os.path.islink(path) or os.path.isfile(path) or os.path.isdir(path))
    ]


def finish(base: str, name: str, check: Callable[[], None]) -> Record:
    """A clear that was cut short: what it had not set aside yet is set aside now. Raises OpError("io")."""
    making = os.path.join(base, SNAPSHOTS, MAKING + name)
    if records.read_record(making, INTENT) is None:
        with contextlib.suppress(OSError):  # cut short before anything was moved
            for leftover in os.listdir(making):
                os.unlink(os.path.join(making, leftover))
            os.rmdir(making)
            return dict(NOTHING)
        raise OpError("io", "%s holds files and says not what they are; it was left alone" % making)
    try:
        set_aside(base, name)
        return describe_aside(base, name, check)
    except (KeyError, ManifestError) as error:
        raise OpError("io", "%s cannot be finished: %s" % (making, error)) from error


def new_name(base: str) -> str:
    """`20261129-181500`, UTC: sorts by time. Raises OpError."""
    stem = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = [stem] + ["%s-%d" % (stem, number) for number in range(2, 1000)]
    for name in names:
        making = os.path.join(base, SNAPSHOTS, MAKING + name)
        if not os.path.lexists(making) and not os.path.lexists(snapshot_folder(base, name)):
            return name
    raise OpError("io", "there are a thousand snapshots of this second")


def _sync_tree(folder: str) -> None:
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            if os.path.isfile(path) and not os.path.islink(path):
                sync_path(path)
        sync_path(top)
