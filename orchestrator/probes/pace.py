"""How fast a run went over its time and how its GPU memory moved: lines of metrics.jsonl, or what its log printed.

Rule: pure; the first minutes of a training are no measure of it, and a single short window is none either: windows of
20 s were seen to vary 1.8 times on a healthy run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.probes.rate import TOKENS
from orchestrator.probes.values import as_float, as_int, as_mapping

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.log_reading import LogReading

WINDOW_S = 390.0
"""A rate is that over this long."""
LEAST_S = 100.0
"""Less is no measure: a run that has not trained for so long has no rate."""
LEAST_LINES = 6
"""The mean of fewer is no measure."""
LAST_LINES, WINDOW_LINES = 20, 60
"""Of a run that is over: so many lines do where it took less than LEAST_S, and so many are looked at."""
MAX_MEMORY_SAMPLES = 60


@dataclass(frozen=True)
class PaceSample:
    """One line. Unknown is None, and () for the memory of no GPU."""

    at_s: float | None
    """Unix time, the target's clock."""
    step: int | None
    tokens_per_s: float | None
    """Since the line before."""
    memory_used_mib: tuple[float, ...] = ()
    """Of each GPU, at that moment."""
    memory_peak_mib: tuple[float, ...] = ()
    """Of each GPU, what torch had allocated at most so far."""
    sm_clock_mhz: tuple[float, ...] = ()
    utilization_percent: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measured:
    per_s: float
    """Of its lines."""
    error_per_s: float
    """Of it, as its lines scatter: large where they are few, or where one held a pause."""


@dataclass(frozen=True)
class Pace:
    samples: tuple[PaceSample, ...]
    source: str
    """metrics.jsonl or log"""

    def rate(self, *, over: bool = False) -> float | None:
        """Tokens a second, as `measured`; over: as `of_all`."""
        found = self.of_all() if over else self.measured()
        return found.per_s if found is not None else None

    def of_all(self) -> Measured | None:
        """Of a run that is over: the median of its last WINDOW_LINES, which no pause to evaluate moves. None: fewer
        than LAST_LINES, and less than LEAST_S of it."""
        told = [one for one in self.samples[1:] if one.tokens_per_s is not None]
        window = told[-WINDOW_LINES:]
        times = [one.at_s for one in window if one.at_s is not None]
        long = len(window) >= LEAST_LINES and len(times) == len(window) and times[-1] - times[0] >= LEAST_S
        if not long and len(told) < LAST_LINES:
            return None
        rates = [one.tokens_per_s or 0.0 for one in window]
        return Measured(_median(rates), _error(rates))

    def measured(self, until: int | None = None) -> Measured | None:
        """Over the last WINDOW_S before sample `until` (None: the last). None: too few lines, or too little time."""
        end = len(self.samples) if until is None else until + 1
        end_s = next((one.at_s for one in reversed(self.samples[:end]) if one.at_s is not None), None)
        if end_s is None:
            return None
        window: list[float] = []
        begin_s = end_s
        for index in range(end - 1, 0, -1):  # not the first one of all: it also counts the start
            one = self.samples[index]
            if one.at_s is None or one.tokens_per_s is None:
                continue
            if one.at_s <= end_s - WINDOW_S and len(window) >= LEAST_LINES:
                break
            window.append(one.tokens_per_s)
            begin_s = one.at_s
        if len(window) < LEAST_LINES or end_s - begin_s < LEAST_S:
            return None
        return Measured(sum(window) / len(window), _error(window))

    @property
    def peak_mib(self) -> float | None:
        """Of the fullest GPU."""
        peaks = [max(one.memory_peak_mib) for one in self.samples if one.memory_peak_mib]
        return max(peaks) if peaks else None

    @property
    def memory_swing(self) -> float | None:
        """How much of its highest use a GPU's memory went up and down by, 0 to 1, of the GPU that moved most, once it
        trained. None: too few samples."""
        rows = [one.memory_used_mib for one in self.samples if one.memory_used_mib][1:][-MAX_MEMORY_SAMPLES:]
        if len(rows) < LEAST_LINES:
            return None
        each = zip(*rows, strict=False)
        return max(((max(gpu) - min(gpu)) / max(gpu) for gpu in map(tuple, each) if max(gpu) > 0), default=None)


def parse_metrics(text: str, *, begins_whole: bool) -> Pace | None:
    """Lines of metrics.jsonl, oldest first. begins_whole: the first line is not half a line. None: it tells nothing."""
    lines = text.splitlines()
    found = [sample for line in (lines if begins_whole else lines[1:]) if (sample := _sample(line)) is not None]
    return Pace(tuple(found), "metrics.jsonl") if found else None


def pace_of_log(reading: LogReading | None, began_s: float | None = None, until_s: float | None = None) -> Pace | None:
    """What a training that only prints lines said of its tokens a second. None: nothing.

    began_s, until_s: the launch, and when the log was last written. Such lines have no times: they are put where their
    steps lie between the two, which makes them look further apart than they are by the time that the start took."""
    found = []
    steps = [step.step for step in reading.steps if step.step is not None] if reading is not None else []
    last = steps[-1] if steps else 0
    per_step_s = (until_s - began_s) / last if began_s is not None and until_s is not None and last > 0 else None
    for step in reading.steps if reading is not None else ():
        rates = [rate.per_s for rate in step.rates if rate.counted == TOKENS and not rate.per_device]
        if rates:
            at_s = None
            if step.step is not None and until_s is not None and per_step_s is not None:
                at_s = until_s - per_step_s * (last - step.step)
            found.append(PaceSample(at_s, step.step, rates[0]))
    return Pace(tuple(found), "log") if found else None


def _sample(line: str) -> PaceSample | None:
    try:
        raw = as_mapping(json.loads(line))
    except ValueError:
        return None
    step, at_s = as_int(raw.get("step")), as_float(raw.get("time"))
    if step is None and at_s is None:
        return None
    return PaceSample(
        at_s=at_s,
        step=step,
        tokens_per_s=_number(raw.get("tokens_per_s")),
        memory_used_mib=_numbers(raw.get("gpu_memory_used_mib")),
        memory_peak_mib=_numbers(raw.get("peak_memory_mib")),
        sm_clock_mhz=_numbers(raw.get("gpu_sm_clock_mhz")),
        utilization_percent=_numbers(raw.get("gpu_utilisation_percent")),
    )


def _number(value: object) -> float | None:
    number = as_float(value)
    return number if number is not None and math.isfinite(number) and number >= 0 else None


def _numbers(value: object) -> tuple[float, ...]:
    """All of them or none: a GPU without a value has no place in a row of others."""
    numbers = [_number(one) for one in value] if isinstance(value, list) else []
    return () if None in numbers else tuple(_known(numbers))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _error(values: Sequence[float]) -> float:
    """Of their mean, as they scatter."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
