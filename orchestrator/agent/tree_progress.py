"""How far a transfer is: counted in payload bytes, before compression."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Progress:
    bytes_done: int
    bytes_total: int
    files_done: int
    files_total: int


OnProgress = Callable[[Progress], None]


class ProgressCounter:
    def __init__(self, sizes: Sequence[int], tell: OnProgress | None) -> None:
        self._ends = list(accumulate(sizes))
        self._tell = tell
        self._done = 0
        self.add(0)

    def add(self, amount: int) -> None:
        self._done += amount
        if self._tell is not None:
            total = self._ends[-1] if self._ends else 0
            self._tell(Progress(self._done, total, bisect_right(self._ends, self._done), len(self._ends)))
