"""A log of any size in one pass: what is worth reading of it, in bounded memory.

Rule: cheap before exact. Lines of a training differ in their numbers only, so each shape of line is looked at once;
what is kept goes through the same reader as a small log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

BEFORE_BYTES, AFTER_BYTES = 16 * 1024, 16 * 1024
"""Kept around a line that tells of something."""
FIRST_BYTES, LAST_BYTES = 2 * 1024 * 1024, 2 * 1024 * 1024
"""Of what is worth reading, so much of the begin and of the end is kept."""
TAIL_BYTES = 256 * 1024
MAX_LINE_BYTES = 1024 * 1024
ENDS_BYTES = 64 * 1024
"""Of a longer line its begin and its end are looked at."""
MAX_SHAPES = 20_000
STEM_BYTES = 4
OFTEN = 200
"""A line that was there so often, but for its numbers, says nothing new. The log's end is read whatever it says."""
_DELETED = bytes(range(0x80, 0x100)) + b"0123456789 .,:+-/|%[]<>#=\t'`_"
_CONTINUED = bytes(range(0x80, 0xC0))
_ENDS = bytes.maketrans(b"\r", b"\n")


@dataclass(frozen=True)
class Part:
    """start: in characters from the log's begin."""

    start: int
    text: str


@dataclass(frozen=True)
class _Kept:
    start: int
    data: bytes

    def part(self) -> Part:
        return Part(self.start, self.data.decode("utf-8", "surrogateescape"))


def bare(needle: str) -> bytes:
    """As it stands in a shape."""
    return needle.lower().encode().translate(None, _DELETED)


@lru_cache(maxsize=2)
def shape_needles(needles: tuple[str, ...]) -> tuple[bytes, ...]:
    """As they stand in shapes; one that holds another is never needed."""
    shapes = {shape for shape in map(bare, needles) if len(shape) > 2}
    return tuple(sorted(shape for shape in shapes if not any(other != shape and other in shape for other in shapes)))


@lru_cache(maxsize=2)
def stems_of(needles: tuple[bytes, ...]) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """(stem, the needles that hold it), few stems for all needles: a text without the stem holds none of these."""
    left, found = set(needles), []
    while left:
        counts: dict[bytes, int] = {}
        for needle in left:
            for stem in {needle[at : at + STEM_BYTES] for at in range(max(1, len(needle) - STEM_BYTES + 1))}:
                counts[stem] = counts.get(stem, 0) + 1
        best = max(counts, key=lambda stem: (counts[stem], stem))
        members = tuple(sorted(needle for needle in left if best in needle))
        found.append((best, members))
        left.difference_update(members)
    return tuple(found)


class LogScan:
    """Takes the log in pieces cut anywhere."""

    def __init__(self, needles: tuple[str, ...], *, is_utf8: bool = False) -> None:
        self._stems = stems_of(shape_needles(needles))
        self._is_utf8 = is_utf8
        self._harmless: set[bytes] = set()
        self._told: dict[bytes, int] = {}
        self._pending = b""
        self._context = b""
        self._at = 0
        self._chars = 0
        self._wanted_end = 0
        self._kept_end = 0
        self._first: list[_Kept] = []
        self._first_bytes = 0
        self._last: deque[_Kept] = deque()
        self._last_bytes = 0
        self._tail: deque[_Kept] = deque()
        self._tail_bytes = 0

    def feed(self, data: bytes) -> None:
        data = self._pending + data if self._pending else data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut and len(data) > MAX_LINE_BYTES:
            cut = _whole_characters(data)
        self._pending = data[cut:]
        if cut:
            self._take(data[:cut])

    def finish(self) -> tuple[list[Part], list[Part]]:
        """(what tells of failures, the log's end), both in order; parts of the first touch or leave something out."""
        if self._pending:
            self._take(self._pending)
            self._pending = b""
        return [kept.part() for kept in (*self._first, *self._last)], [kept.part() for kept in self._tail]

    def _take(self, block: bytes) -> None:
        begin, end = self._at, self._at + len(block)
        base = begin - len(self._context)
        buffer = self._context + block
        for first, last in self._hits(block):
            self._keep_until(buffer, base, min(self._wanted_end, begin + first))
            wanted = max(self._kept_end, base, begin + first - BEFORE_BYTES)
            if wanted > self._kept_end and wanted > 0:
                line = buffer.find(b"\n", wanted - base, begin + first - base)
                wanted = wanted if line == -1 else base + line + 1
            self._kept_end = max(self._kept_end, wanted)
            self._wanted_end = max(self._wanted_end, begin + last + AFTER_BYTES)
            self._keep_until(buffer, base, min(self._wanted_end, begin + last))
        self._keep_until(buffer, base, min(self._wanted_end, end))
        chars = self._count(block)
        self._tail.append(_Kept(self._chars, block))
        self._tail_bytes += len(block)
        while self._tail_bytes - len(self._tail[0].data) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().data)
        self._chars += chars
        self._at = end
        self._context = buffer[-BEFORE_BYTES:]

    def _keep_until(self, buffer: bytes, base: int, end: int) -> None:
        begin = max(self._kept_end, base)
        if end <= begin:
            return
        data = buffer[begin - base : end - base]
        before = self._at - base  # so many bytes of the buffer are of earlier blocks
        at = begin - base
        start = (
            self._chars - self._count(buffer[at:before])
            if at < before
            else self._chars + self._count(buffer[before:at])
        )
        self._kept_end = end
        if self._first_bytes < FIRST_BYTES:
            self._first.append(_Kept(start, data))
            self._first_bytes += len(data)
            return
        self._last.append(_Kept(start, data))
        self._last_bytes += len(data)
        while self._last_bytes - len(self._last[0].data) >= LAST_BYTES:
            self._last_bytes -= len(self._last.popleft().data)

    def _count(self, data: bytes) -> int:
        """Characters."""
        if data.isascii():
            return len(data)
        if self._is_utf8:
            return len(data.translate(None, _CONTINUED))
        return len(data.decode("utf-8", "surrogateescape"))

    def _hits(self, block: bytes) -> list[tuple[int, int]]:
        """(begin, end) of the lines that tell of something; those close to each other as one."""
        shapes = block.translate(_ENDS, _DELETED).split(b"\n")
        fresh = list(set(shapes) - self._harmless)
        telling = self._telling(fresh)
        self._harmless.update([shape for shape in fresh if shape not in telling and len(shape) < 4096])
        if len(self._harmless) + len(self._told) > MAX_SHAPES:
            self._harmless.clear()
            self._told.clear()
        if not telling:
            return []
        hits: list[tuple[int, int]] = []
        at = 0
        for line, shape in zip(block.translate(_ENDS).split(b"\n"), shapes, strict=True):
            end = at + len(line) + 1
            if shape in telling:
                self._told[shape] = self._told.get(shape, 0) + 1
                if self._told[shape] > OFTEN:
                    telling.discard(shape)
                    self._harmless.add(shape)
                if hits and at - hits[-1][1] < AFTER_BYTES:
                    hits[-1] = (hits[-1][0], min(end, len(block)))
                else:
                    hits.append((at, min(end, len(block))))
            at = end
        return hits

    def _telling(self, shapes: list[bytes]) -> set[bytes]:
        """Those that hold a needle. All are searched at once: a needle that is in none costs one look."""
        looked_at = [shape if len(shape) <= 2 * ENDS_BYTES else _ends_of(shape) for shape in shapes]
        joined = b"\n".join(looked_at).lower()
        starts = list(accumulate((len(shape) + 1 for shape in looked_at), initial=0))
        telling: set[bytes] = set()
        for stem, needles in self._stems:
            if stem not in joined:
                continue
            for needle in needles:
                place = joined.find(needle)
                while place != -1:
                    index = bisect_right(starts, place) - 1
                    telling.add(shapes[index])
                    place = joined.find(needle, starts[index + 1])
        return telling


def _ends_of(shape: bytes) -> bytes:
    return shape[:ENDS_BYTES] + b"\n" + shape[-ENDS_BYTES:]


def _whole_characters(data: bytes) -> int:
    """Where data can be cut without cutting a character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            return len(data) - back
    return len(data)
