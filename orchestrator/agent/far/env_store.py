"""Where environments live: <base>/envs/<name>/, whole only once complete.json is in it; and which one is current.

Rule: an environment is never changed after complete.json was written, which happened after everything else of it was
on disk. `current.json` says for each purpose which one a launch takes; it changes by rename.
"""

from __future__ import annotations

import json
import os
import re
import time

from . import live, records
from .channel import Channel
from .durable import sync_path, write_synced
from .errors import OpError
from .records import contract

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

STORE = "envs"
WHEELS = "wheels"
COMPLETE = "complete.json"
CURRENT = "current.json"
BUILDING = ".building"
SCHEMA = 1
NAME = re.compile(r"([0-9a-f]{32})(-[1-9][0-9]{0,3})?")
"""What the lock asks for, and from the second build of that on, which one it is."""


def env_list(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base. {"environments": {name: complete.json or None}, "current": {purpose: {id, previous, instead_of, at}},
    "live": name of the environment of the live run, or None, "store": path}. None: begun and not completed."""
    base = params["base"]
    store = os.path.join(base, STORE)
    return {
        "environments": {name: read_complete(base, name) for name in names(base)},
        "current": read_current(base),
        "live": environment_of_live_run(base),
        "store": store,
    }


def path_of(base: str, name: str) -> str:
    """Raises OpError("bad_request")."""
    if not NAME.fullmatch(name):
        raise OpError("bad_request", "%r is not the name of an environment" % name)
    return os.path.join(base, STORE, name)


def names(base: str) -> list[str]:
    """Also of those that are not whole."""
    try:
        return sorted(name for name in os.listdir(os.path.join(base, STORE)) if NAME.fullmatch(name))
    except FileNotFoundError:
        return []


def read_complete(base: str, name: str) -> Dict[str, Any] | None:
    """None: it is not whole; what was written for another environment, or by hand, does not make it so."""
    record = read_json(os.path.join(path_of(base, name), COMPLETE))
    if record is None or record.get("id") != name or not isinstance(record.get("requirements"), dict):
        return None
    return record if isinstance(record.get("python"), str) else None


def read_current(base: str) -> Dict[str, Any]:
    """Purpose -> {id, previous, ...}; what cannot be read of it is left out."""
    told = read_json(os.path.join(base, STORE, CURRENT)) or {}
    return {purpose: entry for purpose, entry in told.items() if _is_entry(entry)}


def current_is_whole(base: str) -> bool:
    """False: it is there, and which environments are current can not be told from it."""
    path = os.path.join(base, STORE, CURRENT)
    told = read_json(path)
    return not os.path.lexists(path) or (told is not None and len(read_current(base)) == len(told))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not NAME.fullmatch(entry["id"]):
        return False
    previous = entry.get("previous")
    return previous is None or (isinstance(previous, str) and NAME.fullmatch(previous) is not None)


def environment_of_live_run(base: str) -> str | None:
    """Of the run that is live; None: nothing is, or it runs in another one than ours. Raises OpError("busy")."""
    if not live.is_held(base):
        return None
    run_id = (live.read_content(base) or {}).get("run_id")
    spec = records.read_record(records.run_folder(base, run_id), contract.RUN_SPEC) if run_id else None
    if spec is None:
        raise OpError("busy", "a run is live and does not say which environment it uses", "run %s" % run_id)
    used = spec.get("python_environment")
    return str(used["id"]) if isinstance(used, dict) and used.get("id") else None


def point(base: str, purpose: str, name: str, wanted: str | None) -> Dict[str, Any]:
    """Make it the one of that purpose. wanted: what the inventory's lock asks for. Raises OSError."""
    current = read_current(base)
    before = current.get(purpose) or {}
    previous = before.get("id") if before.get("id") != name else before.get("previous")
    instead_of = wanted if wanted != name.partition("-")[0] else None
    entry = {"id": name, "previous": previous, "instead_of": instead_of, "at": time.time()}
    current[purpose] = entry
    write_json(os.path.join(base, STORE, CURRENT), current)
    return entry


def write_json(path: str, record: Dict[str, Any]) -> None:
    """By rename, on disk when this returns. Raises OSError."""
    staging = path + ".new"
    write_synced(staging, json.dumps(record, indent=1, sort_keys=True).encode("ascii") + b"\n")
    os.replace(staging, path)
    sync_path(os.path.dirname(path))


def read_json(path: str) -> Dict[str, Any] | None:
    """None: it is not there, or holds something else."""
    try:
        with open(path, encoding="ascii") as stream:
            record = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
