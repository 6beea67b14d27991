"""The steps that a log tells of, each once, whoever printed it how often, and how fast they went.

Rule: a step that was skipped is no progress; a rate of one device is not one of the job; the first steps, which
compile, say nothing of the speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.probes.measures import Measured, measured_in
from orchestrator.probes.outer_bar import OuterBar
from orchestrator.probes.printed import MAX_LINE_CHARS
from orchestrator.probes.rate import Rate, Reading
from orchestrator.probes.rows import Told
from orchestrator.probes.spans import OWN_WORDS, Located, Span
from orchestrator.probes.tables import Tables

WARM_UP = 3.0
"""Leading steps that were so many times slower than the fastest one are of the warm-up."""


@dataclass(frozen=True)
class RateTold(Located):
    per_s: float
    counted: str
    """tok, samples or it."""
    per_device: bool
    printed: str


@dataclass(frozen=True)
class StepTold(Located):
    step: int | None
    total_steps: int | None
    loss: float | None
    rates: tuple[RateTold, ...]
    """What says most first."""
    eta_s: float | None
    measured: Mapping[str, Measured]
    is_bar: bool = field(metadata=OWN_WORDS)
    is_optimizer_step: bool | None = field(metadata=OWN_WORDS)
    """None: the trainer does not tell."""
    ranks: tuple[int, ...] = field(default=(), metadata=OWN_WORDS)
    reports: int = field(default=1, metadata=OWN_WORDS)
    """How many rows told of it."""

    @property
    def span(self) -> Span:
        return self.spans["whole"]


@dataclass(frozen=True)
class Progress:
    steps: tuple[StepTold, ...]
    rate: RateTold | None
    """The last one printed."""
    typical_rate: RateTold | None
    """The median of its kind, warm-up left out; of one device where that one is."""
    told: Sequence[Told]

    def line_of(self, step: StepTold) -> str:
        return next((each.text.strip() for each in self.told if each.row.span().start == step.span.start), "")


def progress_of(told: Sequence[Told]) -> Progress:
    steps: list[StepTold] = []
    places: dict[tuple[object, ...], int] = {}
    bar = OuterBar()
    tables = Tables()
    last = 0
    for each in told:
        reading, goes_on = tables.read(each.text)
        if reading is None:
            if each.text.startswith("Traceback "):
                bar.forget()  # what comes may be another run
            continue
        if reading.is_bar and reading.loss is None and bar.holds(reading.step, reading.total_steps):
            continue
        step = _told(each, reading)
        if goes_on and last < len(steps):
            steps[last] = replace(_both(steps[last], step), reports=steps[last].reports)
            continue
        if step.is_bar and step.loss is None and steps and _is_bare_bar(steps[-1], step):
            steps[-1] = step
            continue
        key = _key(step)
        place = places.get(key) if key is not None else None
        if place is not None and place < len(steps) and len(steps) - place <= 64 and _is_same(steps[place], step):
            steps[place], last = _both(steps[place], step), place
            continue
        last = len(steps)
        if key is not None:
            places[key] = len(steps)
        steps.append(step)
    rate = next((step.rates[0] for step in reversed(steps) if step.rates), None)
    return Progress(tuple(steps), rate, None if rate is None else _typical(steps, rate), told)


def _told(each: Told, reading: Reading) -> StepTold:
    row = each.row
    end = len(row.text[:MAX_LINE_CHARS])
    return StepTold(
        step=reading.step,
        total_steps=reading.total_steps,
        loss=reading.loss,
        rates=tuple(_rate_told(each, rate) for rate in reading.rates),
        eta_s=reading.eta_s,
        measured=measured_in(row),
        is_bar=reading.is_bar,
        is_optimizer_step=True
        if "(opt.step)" in row.text
        else False
        if "iter time" in row.text and "step" in row.text.lower()
        else None,
        ranks=() if each.origin.rank is None else (each.origin.rank,),
        spans={
            "whole": row.span(0, end),
            **{name: row.span(span.start, span.end) for name, span in reading.spans.items()},
        },
    )


def _rate_told(each: Told, rate: Rate) -> RateTold:
    spans = {}
    if rate.place is not None:
        place = each.row.span(rate.place.start, rate.place.end)
        spans = {name: place for name in ("per_s", "counted", "per_device", "printed")}
    return RateTold(rate.per_s, rate.counted, rate.per_device, rate.printed, spans=spans)


def _is_bare_bar(before: StepTold, step: StepTold) -> bool:
    """The same bar, further on."""
    return before.is_bar and before.loss is None and before.total_steps == step.total_steps


def _key(step: StepTold) -> tuple[object, ...] | None:
    if step.step is None or step.is_bar:
        return None
    iteration = step.measured.get("iteration")
    return (step.step, None if iteration is None or iteration.value == step.step else iteration.value)


def _is_same(first: StepTold, again: StepTold) -> bool:
    totals = {first.total_steps, again.total_steps} - {None}
    return _key(first) == _key(again) and len(totals) < 2


def _both(first: StepTold, again: StepTold) -> StepTold:
    kinds = {(rate.counted, rate.per_device) for rate in first.rates}
    return replace(
        first,
        step=again.step if first.step is None else first.step,
        total_steps=again.total_steps if first.total_steps is None else first.total_steps,
        loss=again.loss if first.loss is None else first.loss,
        rates=(*first.rates, *(rate for rate in again.rates if (rate.counted, rate.per_device) not in kinds)),
        eta_s=again.eta_s if first.eta_s is None else first.eta_s,
        measured={**again.measured, **first.measured},
        ranks=tuple(sorted({*first.ranks, *again.ranks})),
        reports=first.reports + 1,
        spans={**again.spans, **first.spans},
    )


def _typical(steps: Sequence[StepTold], like: RateTold) -> RateTold | None:
    kind = (like.counted, like.per_device)
    values = [rate.per_s for step in steps for rate in step.rates if (rate.counted, rate.per_device) == kind]
    values = [value for value in values if math.isfinite(value)]
    fastest = max(values, default=0.0)
    while len(values) > 1 and values[0] * WARM_UP < fastest:
        del values[0]
    values.sort()
    middle = len(values) // 2
    if not values:
        return None
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    return RateTold(median, like.counted, like.per_device, "")
