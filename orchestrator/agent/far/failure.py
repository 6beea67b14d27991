"""Op find_failure: where a log tells of a failure, and its bytes from there on, whatever was written after it.

Rule: bounded memory, whatever the log's size: it is searched a piece at a time, and a megabyte of it is handed on.
"""

from __future__ import annotations

import os

from .files import open_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Tuple

    from .channel import Channel

MARK = b"Traceback (most recent call last)"
PIECE_BYTES = 1024 * 1024
NEAR_BYTES = 64 * 1024
"""Marks closer to each other belong together: a chain of exceptions, several threads or ranks that failed."""
BEFORE_BYTES = 512 * 1024
AFTER_BYTES = 1024 * 1024
ANNOUNCED_BYTES = 4096


def find_failure(params: Dict[str, Any], body: bytes, channel: Channel) -> Tuple[Dict[str, Any], bytes]:
    """path, before (None: the end), which ("last" or "first"). Answers {size, offset, begin, earlier} and the log's
    bytes from offset on: the failure, and those near it, the first of which begins at `begin`. offset None: there is
    none before `before`. earlier: there are more before `begin`."""
    descriptor = open_file(params["path"])
    try:
        size = os.fstat(descriptor).st_size
        before = params.get("before")
        end = size if before is None else min(size, int(before))
        if params.get("which") == "first":
            mark = _find(descriptor, end, channel)
            begin = mark
        else:
            mark = _find_last(descriptor, end, channel)
            begin = mark if mark is None else _first_near(descriptor, mark, channel)
        if mark is None or begin is None:
            return {"size": size, "offset": None, "begin": None, "earlier": False}, b""
        earlier = begin > 0 and _find_last(descriptor, begin, channel) is not None
        offset = _announcement(descriptor, begin)
        answer = {"size": size, "offset": offset, "begin": begin, "earlier": earlier}
        return answer, _read(descriptor, offset, mark + AFTER_BYTES)
    finally:
        os.close(descriptor)


def last_begin(descriptor: int, end: int, floor: int) -> int | None:
    """Where the last failure between floor and end begins, or those near it."""
    mark = _find_last(descriptor, end, None, floor)
    return None if mark is None else _announcement(descriptor, _first_near(descriptor, mark, None))


def _first_near(descriptor: int, mark: int, channel: Channel | None) -> int:
    begin = mark
    while True:
        nearest = max(0, begin - NEAR_BYTES)
        earlier = _read(descriptor, nearest, begin).find(MARK)
        if earlier == -1 or mark - nearest - earlier > BEFORE_BYTES:
            return begin
        begin = nearest + earlier
        if channel is not None:
            channel.check()


def _announcement(descriptor: int, mark: int) -> int:
    """Where the line before the mark's begins: `Exception in thread Thread-1:`."""
    begin = max(0, mark - ANNOUNCED_BYTES)
    line = _read(descriptor, begin, mark).split(b"\n")
    if len(line) <= 2 and begin > 0:
        return mark - len(line[-1])
    return mark - len(b"\n".join(line[-2:]))


def _find_last(descriptor: int, end: int, channel: Channel | None, floor: int = 0) -> int | None:
    """The last mark that begins before `end`, and not before `floor`."""
    while end > floor:
        if channel is not None:
            channel.check()
        begin = max(floor, end - PIECE_BYTES)
        found = _read(descriptor, begin, end + len(MARK) - 1).rfind(MARK)
        if found != -1:
            return begin + found
        end = begin
    return None


def _find(descriptor: int, end: int, channel: Channel) -> int | None:
    """The first mark that begins before `end`."""
    begin = 0
    while begin < end:
        channel.check()
        stop = min(end, begin + PIECE_BYTES)
        found = _read(descriptor, begin, stop + len(MARK) - 1).find(MARK)
        if found != -1:
            return begin + found
        begin = stop
    return None


def _read(descriptor: int, begin: int, end: int) -> bytes:
    data = b""
    while begin + len(data) < end:
        piece = os.pread(descriptor, end - begin - len(data), begin + len(data))
        if not piece:
            break
        data += piece
    return data
