"""How fast a training is and how far: from the contract's status.json first, from its printed lines otherwise.

Rule: no number is made up. A rate was printed, or it is what the steps advanced by between two looks.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.probes.outer_bar import OuterBar
from orchestrator.probes.rate import ITERATIONS, SAYS_MOST_FIRST, TOKENS, Rate, Reading
from orchestrator.probes.text import plain_lines
from orchestrator.probes.training import TrainingStatus

SHORT_S = 20.0
LONG_S = 300.0
SAMPLE_S = 1.0
"""The long window keeps at most one sample in this time."""
LINES_READ = 100
"""Of many lines that came at once only the last ones are read: what is now is wanted, and cheaply."""
MAX_PENDING_CHARS = 64 * 1024
MAX_READ_CHARS = 256 * 1024
BARS_TAKE_OVER = 100
"""So many bars without a line of metrics: the bar is what tells the step now."""

STATUS, LOG = "status.json", "log"
BEFORE_TRAINING = ("loading", "preparing", "compiling")
"""Phases of the contract in which nothing is trained that is asked about."""


@dataclass(frozen=True)
class Throughput:
    source: str
    """Where the rate (without one: the step) is from: `status.json` or `log`."""
    step: int | None
    total_steps: int | None
    loss: float | None
    rate: Rate | None
    """Now: the last one printed, or over SHORT_S."""
    long_rate: Rate | None
    """Of the same kind over LONG_S: the median of what was printed, or how far the steps advanced."""
    eta_s: float | None
    age_s: float | None = None
    """Since the log last said any of this; None: not known, or it is from status.json, which says when."""


@dataclass(frozen=True)
class _Sample:
    at_s: float
    step: int | None
    rate: Rate | None


class ThroughputMeter:
    """Takes what the training says as it arrives, and says how fast it is. The clock is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Another run, or another log."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._skipping = False
        self._printed = Reading()
        self._printed_at_s: float | None = None
        self._bars = 0
        self._bar = OuterBar()
        self._printed_steps = _Advance()
        self._status: TrainingStatus | None = None
        self._status_steps = _Advance()

    def skip_to_line_end(self) -> None:
        """What comes next begins in the middle of a line: its first piece could be the end of a number."""
        self._skipping = True

    def feed(self, data: bytes) -> None:
        """The log's bytes in order, cut anywhere. Lines that have not ended yet wait: their numbers may go on."""
        text = self._pending + self._decoder.decode(data)
        cut = max(text.rfind("\n"), text.rfind("\r"))
        whole, self._pending = text[: cut + 1], text[cut + 1 :]
        now = self._clock()
        for reading in _readings(whole, first_is_cut=self._skipping):
            self._take(reading, now)
        self._skipping = self._skipping and not whole
        if len(self._pending) > MAX_PENDING_CHARS:
            self._pending, self._skipping = "", True

    def take(self, reading: Reading) -> None:
        """One line that was read already."""
        self._take(reading, self._clock())

    def feed_status(self, status: TrainingStatus | None) -> None:
        """status.json as it stands."""
        self._status = status
        if status is not None and status.step is not None:
            self._status_steps.add(_Sample(self._clock(), status.step, None))

    def fact(self) -> Throughput | None:
        """None: nothing has been said of any progress."""
        now = self._clock()
        log = None if self._printed_at_s is None else self._of_log(now, now - self._printed_at_s)
        return merge(self._status, log, self._status_steps.rates(now))

    def _take(self, reading: Reading, now: float) -> None:
        if reading.is_bar and reading.loss is None and self._bar.holds(reading.step, reading.total_steps):
            return
        self._printed_at_s = now
        known = self._printed
        step, total, rates, eta_s = reading.step, reading.total_steps, reading.rates, reading.eta_s
        self._bars = self._bars + 1 if reading.is_bar else 0
        if reading.is_bar and not known.is_bar and known.step is not None and self._bars <= BARS_TAKE_OVER:
            step, total, eta_s = None, None, None  # lines of metrics know the step better than another bar does
        if reading.is_bar and self._bars <= BARS_TAKE_OVER and _says_more(known.rates, rates):
            rates = known.rates
        self._printed = Reading(
            step=known.step if step is None else step,
            total_steps=known.total_steps if total is None else total,
            loss=known.loss if reading.loss is None else reading.loss,
            rates=rates or known.rates,
            eta_s=eta_s if eta_s is not None or step is not None else known.eta_s,
            is_bar=reading.is_bar if step is not None else known.is_bar,
        )
        rate = reading.rates[0] if reading.rates else None
        if step is not None or rate is not None:
            self._printed_steps.add(_Sample(now, step, rate))

    def _of_log(self, now: float, age_s: float) -> Throughput:
        printed = self._printed
        short, long = advanced = self._printed_steps.rates(now)
        rate = printed.rates[0] if printed.rates else short
        if printed.rates:
            long = self._printed_steps.median(now, printed.rates[0])
        eta_s = printed.eta_s
        if eta_s is None:
            eta_s = _eta_s(printed.step, printed.total_steps, (*printed.rates, *_known(advanced)))
        return Throughput(LOG, printed.step, printed.total_steps, printed.loss, rate, long, eta_s, age_s)


def _says_more(known: tuple[Rate, ...], rates: tuple[Rate, ...]) -> bool:
    """Tokens than iterations: a rate does not change its unit with the line that came last."""
    order = SAYS_MOST_FIRST.index
    return bool(known and rates) and order(known[0].counted) < order(rates[0].counted)


def read_tail(tail: bytes, *, begins_whole: bool) -> Throughput | None:
    """What the end of a log says, looked at once: without arrival times only printed rates are known.

    `begins_whole`: the tail is the whole log. Otherwise its first line is half a line.
    """
    meter = ThroughputMeter(lambda: 0.0)
    if not begins_whole:
        meter.skip_to_line_end()
    meter.feed(tail)
    fact = meter.fact()
    return replace(fact, long_rate=None, age_s=None) if fact else None


def read_end(tail: bytes, *, begins_whole: bool, lines: int = LINES_READ) -> Throughput | None:
    """As read_tail, of its last lines only; the long rate is the median of the rates that they print, of three or
    more: a single line may be half or twice as fast."""
    text = tail.decode("utf-8", "replace")
    text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    readings = _readings(text, first_is_cut=not begins_whole, lines=lines)
    meter = ThroughputMeter(lambda: 0.0)
    for reading in readings:
        meter.take(reading)
    fact = meter.fact()
    if fact is None or fact.rate is None:
        return fact and replace(fact, long_rate=None, age_s=None)
    rates = [reading.rates[0] for reading in readings if reading.rates]
    kind = (fact.rate.counted, fact.rate.per_device)
    values = [rate.per_s for rate in rates if (rate.counted, rate.per_device) == kind]
    return replace(fact, long_rate=Rate(_median(values), *kind) if len(values) >= 3 else None, age_s=None)


def merge(
    status: TrainingStatus | None, log: Throughput | None, advanced: tuple[Rate | None, Rate | None] = (None, None)
) -> Throughput | None:
    """status.json before the log, value by value. `advanced`: status.json's steps over both windows. Before its
    training begins, the steps of a log are another's: those of a target that is made first."""
    if status is not None and status.step is None and status.phase in BEFORE_TRAINING:
        return None
    if status is None or (status.step is None and status.tokens_per_s is None and status.loss is None):
        return log
    short, long = advanced
    if status.tokens_per_s is not None:
        rate: Rate | None = Rate(status.tokens_per_s, TOKENS)
        long_rate, source = rate, STATUS
    elif log is not None and log.rate is not None:
        rate, long_rate, source = log.rate, log.long_rate, LOG
    else:
        rate, long_rate, source = short, long, STATUS
    step = status.step if status.step is not None or log is None else log.step
    total = status.total_steps if status.total_steps is not None or log is None else log.total_steps
    eta_s = status.eta_s
    if eta_s is None and log is not None:
        eta_s = log.eta_s
    if eta_s is None:
        eta_s = _eta_s(step, total, _known((long, short)))
    loss = status.loss if status.loss is not None or log is None else log.loss
    return Throughput(source, step, total, loss, rate, long_rate, eta_s)


class _Advance:
    """Steps and printed rates with the times at which they came, over both windows."""

    def __init__(self) -> None:
        self._short: deque[_Sample] = deque()
        self._long: deque[_Sample] = deque()

    def add(self, sample: _Sample) -> None:
        last = next((s for s in reversed(self._short) if s.step is not None), None)
        if last is not None and last.step is not None and sample.step is not None and sample.step < last.step:
            self._short.clear()  # it began anew, or counts each epoch by itself
            self._long.clear()
        if self._short and self._short[-1].at_s == sample.at_s:  # came at once: the last one counts
            kept = self._short.pop()
            sample = _Sample(
                sample.at_s,
                kept.step if sample.step is None else sample.step,
                kept.rate if sample.rate is None else sample.rate,
            )
        self._short.append(sample)
        if not self._long or sample.at_s - self._long[-1].at_s >= SAMPLE_S:
            self._long.append(sample)

    def rates(self, now: float) -> tuple[Rate | None, Rate | None]:
        """Iterations a second over the short and the long window; None where nothing advanced in between."""
        self._forget(now)
        short = None if _stands_still(self._short, now) else _advance(self._short)
        return short, _advance([*self._long, *list(self._short)[-1:]])

    def median(self, now: float, like: Rate) -> Rate | None:
        """Of the printed rates of the same kind in the long window."""
        self._forget(now)
        values = [
            s.rate.per_s
            for s in self._long
            if s.rate and (s.rate.counted, s.rate.per_device) == (like.counted, like.per_device)
        ]
        return Rate(_median(values), like.counted, like.per_device) if len(values) >= 3 else None

    def _forget(self, now: float) -> None:
        for window, length_s in ((self._short, SHORT_S), (self._long, LONG_S)):
            # One sample from before the window stays: slow steps are measured from it on.
            while len(window) > 2 and window[1].at_s < now - length_s:
                window.popleft()


def _median(values: list[float]) -> float:
    """Importing `statistics` takes longer than a status may."""
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _advance(samples: deque[_Sample] | list[_Sample]) -> Rate | None:
    """Between the arrivals of the first and the last step: what was printed at once counts for nothing."""
    steps = [(sample.at_s, sample.step) for sample in samples if sample.step is not None]
    if len(steps) < 2:
        return None
    (first_s, first), (last_s, last) = steps[0], steps[-1]
    if last_s <= first_s or last <= first:
        return None
    return Rate((last - first) / (last_s - first_s), ITERATIONS)


def _stands_still(samples: deque[_Sample], now: float) -> bool:
    """Nothing new for longer than its steps take."""
    if len(samples) < 2:
        return False
    interval_s = samples[-1].at_s - samples[-2].at_s
    return now - samples[-1].at_s > max(SHORT_S, 3 * interval_s)


def _readings(text: str, *, first_is_cut: bool, lines: int = LINES_READ) -> list[Reading]:
    from orchestrator.probes.tables import Tables  # its patterns are compiled where a line is read at all

    if len(text) > MAX_READ_CHARS:
        text, first_is_cut = text[-MAX_READ_CHARS:], True
    found = plain_lines(text)
    if first_is_cut:
        del found[:1]
    cut = max(0, len(found) - lines - 1)
    tables = Tables()
    readings = [reading for line in found[cut:] if line and (reading := tables.read(line)[0]) is not None]
    return [*_outer_bar(found[:cut], readings), *readings]


def _outer_bar(before: list[str], readings: list[Reading]) -> list[Reading]:
    """Where all that came last is one bar: the longer one before it, within which it may be."""
    from orchestrator.probes.printed import read_line

    totals = {reading.total_steps for reading in readings if reading.is_bar and reading.loss is None}
    if len(totals) != 1 or None in totals or not all(reading.is_bar for reading in readings):
        return []
    same = f"/{readings[0].total_steps} ["
    for line in reversed(before):
        if "%|" in line and same not in line and (outer := read_line(line)) is not None and outer.is_bar:
            return [outer]
    return []


def _eta_s(step: int | None, total: int | None, rates: tuple[Rate, ...]) -> float | None:
    iterations = next((r.per_s for r in rates if r.counted == ITERATIONS and not r.per_device and r.per_s > 0), None)
    if step is None or total is None or total < step or iterations is None:
        return None
    return (total - step) / iterations


def _known(rates: tuple[Rate | None, ...]) -> tuple[Rate, ...]:
    return tuple(rate for rate in rates if rate is not None)
