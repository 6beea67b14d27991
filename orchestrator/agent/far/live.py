"""<base>/live.lock: is a run live on this target? Held with flock by the wrapper and by the training's first process.

Rule: only a lock attempt on a fresh descriptor decides, never what the file says; the content names the holder
for people, and stays behind as a trace of the last run. The file is never removed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from typing import Any, Dict

LIVE_LOCK = "live.lock"
START_LOCK = "start.lock"

Content = Dict[str, Any]


class LockTimeout(Exception):
    """Nobody holds it for good, and yet it could not be had in time."""


def acquire(base: str, timeout_s: float = 10.0) -> int | None:
    """A descriptor that holds the lock (close-on-exec), or None: a run is live. Raises LockTimeout, OSError.

    A reader holds the lock shared for an instant, which must not look like a live run: who fails asks
    for a shared lock himself, and only when that is refused is there a real holder.
    """
    handle = _open(base, LIVE_LOCK)
    until = time.monotonic() + timeout_s
    while not _flock(handle, fcntl.LOCK_EX):
        if not _flock(handle, fcntl.LOCK_SH):
            os.close(handle)
            return None
        fcntl.flock(handle, fcntl.LOCK_UN)
        if time.monotonic() > until:
            os.close(handle)
            raise LockTimeout("%s was busy with readers for %g s" % (LIVE_LOCK, timeout_s))
        time.sleep(0.001 + 0.019 * os.urandom(1)[0] / 255)  # random: not the module, a status needs this file
    return handle


def is_held(base: str) -> bool:
    """Raises OSError other than "there is no such file"."""
    try:
        handle = os.open(os.path.join(base, LIVE_LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _flock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def write_content(handle: int, content: Content) -> None:
    """In place: a rename would leave the lock on the old file. On disk when this returns."""
    data = json.dumps(content, sort_keys=True).encode("ascii") + b"\n"
    os.pwrite(handle, data, 0)
    os.ftruncate(handle, len(data))
    os.fsync(handle)


def read_content(base: str) -> Content | None:
    """What the last holder wrote; None when there is nothing, or it is being written."""
    try:
        with open(os.path.join(base, LIVE_LOCK), "rb") as stream:
            content = json.loads(stream.read().decode("ascii"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def facts(base: str) -> Dict[str, Any]:
    return {"held": is_held(base), "content": read_content(base)}


def acquire_start(base: str, timeout_s: float) -> int | None:
    """One start at a time: a descriptor that holds <base>/start.lock, or None after timeout_s. Raises OSError."""
    handle = _open(base, START_LOCK)
    until = time.monotonic() + timeout_s
    while not _flock(handle, fcntl.LOCK_EX):
        if time.monotonic() > until:
            os.close(handle)
            return None
        time.sleep(0.02)
    return handle


def _open(base: str, name: str) -> int:
    return os.open(os.path.join(base, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _flock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
