"""A folder of publications: which is current, which may go. Every publication in it is a tree that `tree_push` brought.

    <store>/<tree hash>/       one publication, never changed
    <store>/<tree hash>.json   its record: every file's hash, and where it came from
    <store>/current            link to one of them; changes by rename
    <store>/previous           link to the one that was current before

Rule: a publication becomes current only after every byte of it was read again and found as its record says.
"""

from __future__ import annotations

import os

from .channel import Channel
from .durable import sync_path
from .errors import OpError
from .release_store import INCOMING, is_complete, newest_first, point, read_record, release_names, remove_tree
from .tree_push import one_push
from .tree_read import tree_verify

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List

CURRENT, PREVIOUS = "current", "previous"


def publications_list(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """store. {current, previous: tree hashes or None, publications: records without the files, unreadable: names}.
    A store that is not there is empty."""
    store = params["store"]
    found: List[Dict[str, Any]] = []
    unreadable = []
    for name in release_names(store):
        channel.check()
        try:
            record = read_record(os.path.join(store, name))[0]
        except OpError:
            unreadable.append(name)
            continue
        found.append({key: value for key, value in record.items() if key != "entries"})
    links = {link: _linked(store, link) for link in (CURRENT, PREVIOUS)}
    return dict(links, publications=found, unreadable=unreadable)


def publication_switch(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """store, tree_hash, lock_wait_s, expected (what may be current now; None: anything). {current, previous, before:
    tree hashes or None}.

    Raises OpError: missing, damaged, conflict, changed, busy, io."""
    store, name = params["store"], params["tree_hash"]
    final = os.path.join(store, name)
    if os.path.basename(name) != name or not is_complete(final):
        raise OpError("missing", "there is no whole publication %s in %s" % (name, store))
    try:
        with one_push(store, float(params["lock_wait_s"]), channel):
            before = _linked(store, CURRENT)
            expected = params.get("expected")
            if expected is not None and before not in expected:
                raise OpError("changed", "another one was published meanwhile; it stays", "current is %s" % before)
            told = tree_verify({"path": final}, b"", channel)
            if any(told.values()):
                lines = ["%s: %s" % (what, ", ".join(names[:5])) for what, names in sorted(told.items()) if names]
                raise OpError("damaged", "%s is not what was published" % final, "\n".join(lines))
            if before != name:
                if before is not None:
                    _point(store, PREVIOUS, before)
                _point(store, CURRENT, name)
                sync_path(store)
            return {"current": name, "previous": _linked(store, PREVIOUS), "before": before}
    except OSError as error:
        raise OpError("io", "%s: %s" % (store, error)) from error


def publications_prune(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """store, keep (of the newest), lock_wait_s. Never the current one or the one before. {removed: tree hashes}.
    Raises OpError."""
    store = params["store"]
    if not os.path.isdir(store):
        return {"removed": []}
    try:
        with one_push(store, float(params["lock_wait_s"]), channel):
            by_age = newest_first(store)
            pinned = {_linked(store, CURRENT), _linked(store, PREVIOUS), *by_age[: int(params["keep"])]}
            going = [name for name in by_age if name not in pinned]
            for name in going:
                channel.check()
                remove_tree(store, name)
    except OSError as error:
        raise OpError("io", "%s: %s" % (store, error)) from error
    return {"removed": going}


def _linked(store: str, link: str) -> str | None:
    """Raises OpError("conflict") when something else has that name."""
    path = os.path.join(store, link)
    try:
        name = os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OpError("conflict", "%s is not a link that orch made" % path, str(error)) from error
    if os.path.basename(name) != name:
        raise OpError("conflict", "%s leads to %s, which is no publication beside it" % (path, name))
    return name


def _point(store: str, link: str, name: str) -> None:
    point(os.path.join(store, link), name, os.path.join(store, INCOMING, link))
