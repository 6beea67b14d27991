"""Which release is current, and which may go. Needs the lease.

Rule: `current` and `previous` are relative links that change by rename; a release that they name, that a live
run was started from, or that the caller names is never removed.
"""

from __future__ import annotations

import os

from . import journal, live, records
from .channel import Channel
from .durable import sync_path
from .errors import OpError
from .lease import require
from .records import contract
from .release_store import is_complete, newest_first, point, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Set

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
        with journal.begin(base, "switch", None, {"release": name, "from": before}):
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
    by_age = newest_first(store)
    pinned: Set[str | None] = {linked_release(base, CURRENT), linked_release(base, PREVIOUS), *params["in_use"]}
    pinned.add(_release_of_live_run(base))
    pinned.update(by_age[: int(params["keep"])])
    going = [name for name in by_age if name not in pinned]
    if going:
        with journal.begin(base, "prune", None, {"releases": going}, required=False):
            for name in going:
                channel.check()
                remove_tree(store, name)
    return {"removed": going, "kept": [name for name in by_age if name not in going]}


def _release_of_live_run(base: str) -> str | None:
    """None: no run is live. Raises OpError("busy") when one is and what it runs from cannot be found out."""
    if not live.is_held(base):
        return None
    run_id = (live.read_content(base) or {}).get("run_id")
    spec = records.read_record(records.run_folder(base, run_id), contract.RUN_SPEC) if run_id else None
    release = (spec or {}).get("release")
    if not isinstance(release, str):
        raise OpError("busy", "a run is live and does not say which release it uses", "run %s" % run_id)
    return os.path.basename(release.rstrip("/"))


def _point(base: str, link: str, name: str) -> None:
    point(os.path.join(base, link), os.path.join(STORE, name), os.path.join(base, ".%s.incoming" % link))
