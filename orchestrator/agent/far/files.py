"""Looks at files, and follows one. Paths are absolute; nothing here writes except remove_below.

Rule: a file that is not there is OpError("missing"), never an empty answer.
"""

from __future__ import annotations

import os
import stat

from .channel import Channel
from .errors import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Tuple

READ_LIMIT_BYTES = 4 * 1024 * 1024
FOLLOW_CHUNK_BYTES = 256 * 1024
FOLLOW_POLL_S = 0.2


def read_file(params: Dict[str, Any], body: bytes, channel: Channel) -> Tuple[Dict[str, Any], bytes]:
    """path, offset (negative: from the end), limit (bytes). Answers {size, offset, inode, mtime_s} and the bytes."""
    offset = int(params.get("offset") or 0)
    limit = min(int(params.get("limit") or READ_LIMIT_BYTES), READ_LIMIT_BYTES)
    descriptor = open_file(params["path"])
    try:
        facts = os.fstat(descriptor)
        if offset < 0:
            offset = max(0, facts.st_size + offset)
        data = b""
        while len(data) < limit:
            piece = os.pread(descriptor, limit - len(data), offset + len(data))
            if not piece:
                break
            data += piece
    finally:
        os.close(descriptor)
    return {"size": facts.st_size, "offset": offset, "inode": facts.st_ino, "mtime_s": facts.st_mtime}, data


def follow_file(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """path, offset (negative: from the end). Ends only when cancelled. Events:

    {what: "waiting"}               not there yet (said once)
    {what: "data", offset, inode}   with the bytes that start at offset
    {what: "truncated"}             it became shorter: what follows starts at 0
    {what: "replaced"}              another file has the name now: what follows starts at 0
    """
    path = params["path"]
    offset = int(params.get("offset") or 0)
    descriptor = _wait_for(path, channel)
    try:
        if offset < 0:
            offset = max(0, os.fstat(descriptor).st_size + offset)
        while True:
            channel.check()
            facts = os.fstat(descriptor)
            if facts.st_size < offset:
                channel.emit({"what": "truncated"})
                offset = 0
            data = os.pread(descriptor, FOLLOW_CHUNK_BYTES, offset)
            if data:
                channel.emit({"what": "data", "offset": offset, "inode": facts.st_ino}, data)
                offset += len(data)
                continue
            if _is_replaced(path, facts):
                successor = _wait_for(path, channel)
                os.close(descriptor)
                descriptor = successor
                channel.emit({"what": "replaced"})
                offset = 0
                continue
            channel.cancelled.wait(FOLLOW_POLL_S)
    finally:
        os.close(descriptor)


def free_space(path: str) -> Dict[str, int | None]:
    facts = os.statvfs(path)
    counted = facts.f_files > 0  # btrfs and others make inodes as they need them
    return {
        "bytes_free": facts.f_bavail * facts.f_frsize,
        "bytes_total": facts.f_blocks * facts.f_frsize,
        "inodes_free": facts.f_favail if counted else None,
        "inodes_total": facts.f_files if counted else None,
    }


def remove_below(base: str, path: str) -> bool:
    """False: it was not there. Every step goes through descriptors, so no link put in the way can lead elsewhere.
    Raises OpError (not below base), OSError."""
    inner = os.path.relpath(path, base)
    parts = inner.split(os.sep)
    if not os.path.isabs(path) or os.path.normpath(path) != path or parts[0] in ("..", "."):
        raise OpError("bad_path", "%s is not strictly below %s" % (path, base))
    parent = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            parent = deeper
        _remove_entry(parts[-1], parent)
    except FileNotFoundError:
        return False
    except NotADirectoryError as error:
        raise OpError("bad_path", "%s leads through a link or a file" % path, str(error)) from error
    finally:
        os.close(parent)
    return True


def _remove_entry(name: str, parent: int) -> None:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for inner in os.listdir(folder):
            _remove_entry(inner, folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)


def open_file(path: str) -> int:
    """Never a device or a pipe, whose read could hang. Raises OpError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _named(error, path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OpError("not_a_file", "%s is not a regular file" % path)
    return descriptor


def _wait_for(path: str, channel: Channel) -> int:
    told = False
    while True:
        try:
            return open_file(path)
        except OpError as error:
            if error.kind != "missing":
                raise
        if not told:
            channel.emit({"what": "waiting"})
            told = True
        channel.cancelled.wait(FOLLOW_POLL_S)
        channel.check()


def _is_replaced(path: str, facts: os.stat_result) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False  # removed, or about to be replaced: what is open may still grow
    return (now.st_dev, now.st_ino) != (facts.st_dev, facts.st_ino)


def _named(error: OSError, path: str) -> OpError:
    kinds = {FileNotFoundError: "missing", NotADirectoryError: "not_a_dir", PermissionError: "denied"}
    return OpError(kinds.get(type(error), "io"), "%s: %s" % (path, error.strerror))
