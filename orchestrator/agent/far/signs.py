"""Where a log speaks of a failure without a traceback, or long before its last one: the rows around those words.

Rule: bounded, and cheap: exact words, a piece at a time; of many places only the first and the last ones.
"""

from __future__ import annotations

from .failure import MARK, PIECE_BYTES, _read

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import List, Tuple

WORDS = (
    MARK,
    *(b"out of memory", b"No space left on device", b"Disk quota exceeded", b"Input/output error"),
    *(b"Segmentation fault", b"Bus error", b"bus error", b"Fatal Python error", b"terminate called after", b"SIGSEGV"),
    *(b"SIGKILL", b"Killed", b"CUDA error", b"device-side assert", b"illegal memory access", b"Assertion `"),
    *(
        b"Watchdog caught collective",
        b"NCCL error",
        b"Xid (",
        b"FX to symbolically trace",
        b"loss is nan",
        b"Loss is nan",
    ),
    *(b"cannot open shared object file", b"FailOnRecompileLimitHit", b"DataLoader worker (pid"),
)
MOST = 4
"""So many of the first places, and of the last ones."""
BEFORE_BYTES, AFTER_BYTES = 8 * 1024, 32 * 1024
LEFT_OUT = b"\n[orch] left out\n"


def rows_around(descriptor: int, end: int, floor: int = 0) -> bytes:
    """Of the log between floor and end. Empty: it speaks of none there."""
    places: List[int] = []
    for begin in range(floor, end, PIECE_BYTES):
        stop = min(end, begin + PIECE_BYTES)
        piece = _read(descriptor, begin, stop + 64)  # words over its end are of this one
        for word in WORDS:
            first = piece.find(word, 0, stop - begin + len(word) - 1)
            if first != -1:
                places.append(begin + first)
                places.append(begin + piece.rfind(word, 0, stop - begin + len(word) - 1))
    places = sorted(set(places))
    parts: List[Tuple[int, int]] = []
    for place in places[:MOST] + places[MOST:][-MOST:]:
        start, stop = max(floor, place - BEFORE_BYTES), min(end, place + AFTER_BYTES)
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], stop)
        else:
            parts.append((start, stop))
    return LEFT_OUT.join([_whole_lines(descriptor, start, stop, floor, end) for start, stop in parts])


def _whole_lines(descriptor: int, start: int, stop: int, floor: int, end: int) -> bytes:
    data = _read(descriptor, start, stop)
    if start > floor and b"\n" in data[:BEFORE_BYTES]:
        data = data[data.index(b"\n") + 1 :]
    if stop < end and b"\n" in data[BEFORE_BYTES:]:
        data = data[: data.rindex(b"\n")]
    return data
