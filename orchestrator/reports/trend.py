"""PURE: how loss and throughput went while somebody watched, as far as it fits into a line.

Rule: bounded, however long the watch; each point is the mean of a stretch of steps, and none is made up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.reports.status import StatusReport

POINTS = 48
"""When there are so many, pairs of them become one."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Point:
    step: int
    total: float
    count: int

    @property
    def mean(self) -> float:
        return self.total / self.count


class Series:
    """Values by step. A step that is told again, or an earlier one, is no new point."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._each = 1
        """So many values make one point."""
        self._last_step = -1

    def add(self, step: int, value: float) -> None:
        if step <= self._last_step or not math.isfinite(value):
            return
        self._last_step = step
        if self.points and self.points[-1].count < self._each:
            last = self.points[-1]
            self.points[-1] = Point(last.step, last.total + value, last.count + 1)
            return
        self.points.append(Point(step, value, 1))
        if len(self.points) >= POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [Point(a.step, a.total + b.total, a.count + b.count) for a, b in pairs]
            self._each *= 2

    @property
    def first_step(self) -> int | None:
        return self.points[0].step if self.points else None


class Trend:
    """Of one target; another run begins anew."""

    def __init__(self) -> None:
        self._run_id: str | None = None
        self._cache: tuple[int, float] | None = None
        """Bytes, and when they were counted first (the target's clock)."""
        self.loss, self.rate = Series(), Series()
        self.cache_grown_bytes: int | None = None
        self.cache_since_s: float | None = None

    def take(self, report: StatusReport) -> None:
        """Each report of a watch, in order."""
        run_id = report.run.run_id if report.run else None
        if run_id != self._run_id:
            self._run_id, self._cache = run_id, None
            self.loss, self.rate = Series(), Series()
            self.cache_grown_bytes = self.cache_since_s = None
            self._before(report.last_lines)
        said = report.throughput
        if said is not None and said.step is not None:
            if said.loss is not None:
                self.loss.add(said.step, said.loss)
            if said.rate is not None:
                self.rate.add(said.step, said.rate.per_s)
        self._take_cache(report)

    def _before(self, lines: Sequence[str]) -> None:
        """What the log's last lines tell of the time before the watch."""
        from orchestrator.probes.printed import read_line  # a list of runs draws its bars, and reads no line

        for line in lines:
            reading = read_line(line)
            if reading is None or reading.step is None:
                continue
            if reading.loss is not None:
                self.loss.add(reading.step, reading.loss)
            if reading.rates:
                self.rate.add(reading.step, reading.rates[0].per_s)

    def _take_cache(self, report: StatusReport) -> None:
        cache, now_s = report.cache, report.now_s
        if cache is None or cache.bytes is None or now_s is None or not cache.complete:
            return
        counted_at = now_s - (cache.age_s or 0.0)
        if self._cache is None:
            self._cache = cache.bytes, counted_at
        first_bytes, first_at = self._cache
        self.cache_grown_bytes, self.cache_since_s = cache.bytes - first_bytes, max(0.0, now_s - first_at)


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` of them, from the lowest bar to the highest. Values that are all the same are a flat line."""
    shown = list(values)[-width:] if width > 0 else []
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / span * len(BARS)))] for value in shown)
