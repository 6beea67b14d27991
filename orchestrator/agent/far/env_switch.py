"""Which environment a purpose uses, and which may go. Needs the lease.

Rule: an environment that is current for a purpose, or that the live run was started in, is never removed.
"""

from __future__ import annotations

import contextlib
import os

from . import journal
from .blobs import remove_quietly
from .channel import Channel
from .env_build import end_leftovers, sweep
from .env_store import (
    BUILDING,
    CURRENT,
    STORE,
    WHEELS,
    current_is_whole,
    environment_of_live_run,
    names,
    path_of,
    point,
    read_complete,
    read_current,
)
from .errors import OpError
from .files import remove_below
from .lease import require
from .release_store import INCOMING, record_path

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict


def env_use(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, purpose, id (None: the one before), wanted (what the inventory's lock asks for, or None).

    {"id", "previous", "instead_of", "at", "before"}: names; before is None at first. Raises OpError: missing."""
    base, purpose, name = params["base"], str(params["purpose"]), params.get("id")
    require(base)
    before = (read_current(base).get(purpose) or {}).get("id")
    if name is None:
        name = (read_current(base).get(purpose) or {}).get("previous")
        if name is None:
            raise OpError("missing", "there is no environment for %s before this one" % purpose)
    if read_complete(base, name) is None:
        raise OpError("missing", "there is no complete environment %s" % path_of(base, name))
    with journal.begin(base, "env-use", None, {"purpose": purpose, "environment": name, "from": before}):
        entry = point(base, purpose, name, params.get("wanted"))
    return dict(entry, before=before)


def env_remove(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, ids (None: all that are neither current nor before that nor in use). {"removed": names}.

    Wheels that no environment was made of any more go, too. Raises OpError: busy, missing."""
    base, wanted = params["base"], params.get("ids")
    require(base)
    store = os.path.join(base, STORE)
    current = read_current(base)
    live = environment_of_live_run(base)
    there = names(base)
    if wanted is None:
        kept = {live}
        for entry in current.values():
            kept.update((entry.get("id"), entry.get("previous")))
        wanted = [name for name in there if name not in kept]
    if wanted and not current_is_whole(base):
        text = "%s cannot be read: which environments are current is not known" % os.path.join(store, CURRENT)
        raise OpError("busy", text, "`orch env use` or `orch env sync` writes it anew")
    for name in wanted:
        if name not in there:
            raise OpError("missing", "there is no environment %s" % path_of(base, name))
        users = ["a live run"] if name == live else []
        users += ["purpose %s" % purpose for purpose, entry in sorted(current.items()) if entry.get("id") == name]
        if users:
            raise OpError("busy", "environment %s is in use by %s" % (name, " and ".join(users)))
    with journal.begin(base, "env-remove", None, {"environments": list(wanted)}, required=False):
        end_leftovers(store)
        for name in wanted:
            channel.check()
            _remove(store, name)
        if os.path.isdir(store):
            sweep(base)
        _forget_wheels(base)
    return {"removed": list(wanted)}


def _remove(store: str, name: str) -> None:
    """Aside first: half an environment must not keep a whole one's name."""
    aside = os.path.join(store, BUILDING, "removed-" + name)
    os.makedirs(os.path.dirname(aside), exist_ok=True)
    os.rename(os.path.join(store, name), aside)
    remove_below(store, aside)


def _forget_wheels(base: str) -> None:
    used = {(read_complete(base, name) or {}).get("wheels") for name in names(base)}
    store = os.path.join(base, WHEELS)
    if not os.path.isdir(store):
        return
    for name in sorted(os.listdir(store)):
        tree = os.path.join(store, name)
        if name != INCOMING and os.path.isdir(tree) and name not in used:
            aside = os.path.join(store, INCOMING, "removed-" + name)
            os.makedirs(os.path.dirname(aside), exist_ok=True)
            os.rename(tree, aside)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(record_path(tree))
            remove_quietly(aside)
