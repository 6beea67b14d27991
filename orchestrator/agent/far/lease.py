"""One writer per target: an flock on <base>/lease.lock, held by this process for as long as it lives.

Rule: the descriptor is close-on-exec and closed by `lease_release` alone, so the lease ends when the agent does,
however it does. Destructive ops call `require`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time

from .channel import Channel
from .errors import OpError
from .process import identity_of, is_alive

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Tuple

LEASE_FILE = "lease.lock"
NAME_WAIT_S = 1.0
"""A holder takes milliseconds to write its name. One of an older orch, which says less, is waited for in vain."""

_held: Dict[str, Tuple[int, Dict[str, Any]]] = {}
_held_lock = threading.Lock()


def lease_acquire(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base, who, host, pid (of the controller). Answers {"holder": {who, host, pid, since}}.

    Does not wait: raises OpError("busy") naming the holder.
    """
    base = os.path.abspath(params["base"])
    with _held_lock:
        if base in _held:
            return {"holder": _held[base][1]}
        os.makedirs(base, exist_ok=True)
        path = os.path.join(base, LEASE_FILE)
        descriptor = _lock(path)
        holder = {"who": params["who"], "host": params["host"], "pid": params["pid"], "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(dict(holder, agent=identity_of(os.getpid()))).encode("ascii"), 0)
        _held[base] = (descriptor, holder)
    return {"holder": holder}


def lease_assert(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base. Raises OpError("no_lease")."""
    require(params["base"])
    return {}


def lease_release(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """base. For an agent that goes on without changing anything, such as one that waits for a run's end."""
    with _held_lock:
        held = _held.pop(os.path.abspath(params["base"]), None)
    if held is not None:
        os.close(held[0])
    return {"released": held is not None}


def holder(base: str) -> Dict[str, Any] | None:
    """{who, host, pid, since} of the lease on base if this agent holds it."""
    with _held_lock:
        held = _held.get(os.path.abspath(base))
    return held[1] if held else None


def require(base: str) -> None:
    """Raises OpError("no_lease") unless this agent holds the lease on base, and the lock file is still the same."""
    base = os.path.abspath(base)
    with _held_lock:
        if base not in _held:
            raise OpError("no_lease", "this needs the lease on %s, which this agent does not hold" % base)
        descriptor = _held[base][0]
    if not _is_at(descriptor, os.path.join(base, LEASE_FILE)):
        raise OpError("no_lease", "%s was replaced while it was held" % os.path.join(base, LEASE_FILE))


def _lock(path: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            told = _told(descriptor)
            os.close(descriptor)
            raise OpError("busy", _busy_text(path, told), told) from error
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # somebody removed the file between our open and our lock


def _told(descriptor: int) -> str:
    """What the holder says of itself. Between its lock and its name a moment passes, in which the file is empty or
    still names the one before: that one's agent is gone."""
    until = time.monotonic() + NAME_WAIT_S
    while True:
        told = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if is_alive(json.loads(told)["agent"]):
                return told
        if time.monotonic() > until:
            return told
        time.sleep(0.01)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there, here = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _busy_text(path: str, told: str) -> str:
    try:
        holder = json.loads(told)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["since"]))
        return "%s is held by %s on %s (pid %s) since %s" % (path, holder["who"], holder["host"], holder["pid"], since)
    except (ValueError, KeyError, TypeError):
        return "%s is held by somebody who left no name" % path
