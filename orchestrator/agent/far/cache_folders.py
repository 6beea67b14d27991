"""The live caches' folders: which may be moved, which lie within another, and whether a run may use them meanwhile."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict

from . import live
from .errors import OpError
from .snapshots import SNAPSHOTS

LIVE = "caches/live"
TURN_S = 8.0
"""How long a start that is under way may take before this says busy."""


@contextlib.contextmanager
def nothing_starts(base: str) -> Any:
    """No run is live, and none can start, within the block. Raises OpError("busy")."""
    starting = live.acquire_start(base, TURN_S)
    if starting is None:
        raise OpError("busy", "a run is being started on %s" % base)
    try:
        if live.is_held(base):
            run_id = (live.read_content(base) or {}).get("run_id") or "unknown"
            raise OpError("busy", "run %s is live and uses the caches; nothing was changed" % run_id)
        yield
    finally:
        os.close(starting)


def check_folders(base: str, folders: Dict[str, str]) -> Dict[str, str]:
    """Raises OpError("bad_folder") for what one rename cannot, or must not, set aside."""
    for kind, path in folders.items():
        _check_not_ours(base, kind, path)
        if not os.path.isabs(path) or os.path.normpath(path) != path or path == "/":
            raise OpError("bad_folder", "the %s cache %r is not an absolute path to a folder" % (kind, path))
        real = os.path.realpath(path)
        if os.path.realpath(base) == real or os.path.realpath(base).startswith(real + "/"):
            raise OpError("bad_folder", "the %s cache %s holds all of %s" % (kind, path, base))
        if os.path.islink(path):
            raise OpError("bad_folder", "the %s cache %s is a link, and links are not followed" % (kind, path), real)
        if os.path.ismount(path):
            raise OpError("bad_folder", "the %s cache %s is a mount point and cannot be renamed" % (kind, path))
        if os.path.lexists(path) and not os.path.isdir(path):
            raise OpError("bad_folder", "the %s cache %s is not a folder" % (kind, path))
    by_place = {kind: os.path.realpath(path) for kind, path in folders.items()}
    if nested(by_place) != nested(folders):  # the second would be gone, or there twice, once the first has moved
        raise OpError(
            "bad_folder", "a cache lies in another one, and its path says so only through a link", str(by_place)
        )
    return dict(folders)


def _check_not_ours(base: str, kind: str, path: str) -> None:
    """Runs, releases and snapshots are no cache, whatever the inventory says. Raises OpError("bad_folder")."""
    real, ours = os.path.realpath(path), os.path.realpath(base)
    kept = os.path.realpath(os.path.join(base, SNAPSHOTS))
    among = real.startswith(ours + "/") and not (real + "/").startswith(os.path.join(ours, LIVE) + "/")
    if among or (real + "/").startswith(kept + "/") or kept.startswith(real + "/"):
        raise OpError("bad_folder", "the %s cache %s is among what orch keeps below %s" % (kind, path, base))


def separate(folders: Dict[str, str]) -> Dict[str, str]:
    """Without those that lie in another one, or are the same: they go where that goes."""
    return {kind: path for kind, path in folders.items() if kind not in nested(folders)}


def nested(folders: Dict[str, str]) -> Dict[str, str]:
    """Cache -> where it lies within the snapshot, for a cache within another one's folder."""
    found = {}
    kinds = list(folders)
    for number, kind in enumerate(kinds):
        for other in kinds:
            same = folders[kind] == folders[other]
            if folders[kind].startswith(folders[other] + "/") or (same and kinds.index(other) < number):
                found[kind] = other + folders[kind][len(folders[other]) :]
                break
    return found


def holds_something(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False
