"""Which release is current, and which may go. Needs the lease.

Rule: `current` and `previous` are relative links that change by rename; a release that they name, that a live
run was started from, or that the caller names is never removed.
"""

from __future__ import annotations

import fcntl
import json
import os

from .blobs import sync_path
from .channel import Channel
from .errors import OpError
from .files import remove_below
from .lease import require
from .release_store import INCOMING, is_complete, read_record, record_path, release_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: importing typing would double the agent's start
    from typing import Any, Dict, List, Set

STORE = "releases"
CURRENT, PREVIOUS = "current", "previous"


def switch_current(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, tree_hash. Answers {current, previous}: tree hashes, previous None at first. Raises OpError: missing."""
    base, name = params["base"], params["tree_hash"]
    require(base)
    if os.path.basename(name) != name or not is_complete(os.path.join(base, STORE, name)):
        raise OpError("missing", "there is no complete release %s in %s" % (name, os.path.join(base, STORE)))
    before = linked_release(base, CURRENT)
    if before != name:
        if before is not None:
            _point(base, PREVIOUS, before)
        _point(base, CURRENT, name)
        sync_path(base)
    return {"current": name, "previous": linked_release(base, PREVIOUS)}


def linked_release(base: str, link: str) -> str | None:
    """Tree hash that the link names. Raises OpError("conflict") when something else has that name."""
    path = os.path.join(base, link)
    try:
        folder, name = os.path.split(os.readlink(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OpError("conflict", "%s is not a link that orch made" % path, str(error)) from error
    if folder != STORE:
        raise OpError("conflict", "%s leads to %s, not into %s" % (path, os.path.join(folder, name), STORE))
    return name


def prune_releases(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, keep (number of newest), in_use (more tree hashes). Answers {removed, kept}: tree hashes, newest first."""
    base = params["base"]
    require(base)
    store = os.path.join(base, STORE)
    pushed = {name: float(read_record(os.path.join(store, name))[0]["pushed_at"]) for name in release_names(store)}
    newest_first = sorted(pushed, key=lambda name: (-pushed[name], name))
    pinned: Set[str | None] = {linked_release(base, CURRENT), linked_release(base, PREVIOUS), *params["in_use"]}
    pinned.add(_release_of_live_run(base))
    pinned.update(newest_first[: int(params["keep"])])
    removed: List[str] = []
    for name in newest_first:
        if name in pinned:
            continue
        channel.check()
        # Aside first: half a release must not keep a whole one's name.
        os.makedirs(os.path.join(store, INCOMING), exist_ok=True)
        aside = os.path.join(store, INCOMING, "removed-" + name)
        os.rename(os.path.join(store, name), aside)
        os.unlink(record_path(os.path.join(store, name)))
        remove_below(store, aside)
        removed.append(name)
    return {"removed": removed, "kept": [name for name in newest_first if name not in removed]}


def _release_of_live_run(base: str) -> str | None:
    """None: no run is live. Raises OpError("busy") when one is and what it runs from cannot be found out."""
    path = os.path.join(base, "live.lock")
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except OSError:
            told = os.pread(descriptor, 65536, 0)
    finally:
        os.close(descriptor)
    try:
        run_id = os.path.basename(str(json.loads(told)["run_id"]))
        with open(os.path.join(base, "runs", run_id, "run.json"), encoding="utf-8") as stream:
            return os.path.basename(str(json.load(stream)["release"]).rstrip("/"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OpError("busy", "a run is live and does not say which release it uses", repr(error)) from error


def _point(base: str, link: str, name: str) -> None:
    staging = os.path.join(base, ".%s.incoming" % link)
    if os.path.lexists(staging):
        os.unlink(staging)
    os.symlink(os.path.join(STORE, name), staging)
    os.rename(staging, os.path.join(base, link))
