"""A training's log, read: its progress, its tracebacks, its failures and which of them is the cause.

Rule: one reader for a tail, a pane and a log of gigabytes. It is linear in its input and holds no more than a bounded
part of it; every value says where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.probes.failures.dumps import NEEDLES as BLOCK_NEEDLES
from orchestrator.probes.failures.kinds import KINDS
from orchestrator.probes.failures.search import SIGNATURES, FailureFound, find_failures, root_of
from orchestrator.probes.log_scan import Kept, LogScan
from orchestrator.probes.pane import joined_pane
from orchestrator.probes.progress import Progress, RateTold, StepTold, progress_of
from orchestrator.probes.rows import Origin, Row, Told, rows_of, told_rows
from orchestrator.probes.spans import OWN_WORDS, Located, Span, Value
from orchestrator.probes.traceback_facts import Traceback
from orchestrator.probes.tracebacks import find_tracebacks

WHOLE_BYTES = 1024 * 1024
"""Up to here all of it is read; of more, what the scan keeps."""
MAX_STEPS = 1000
MAX_TRACEBACKS = 256
PANE_ROWS = 5000
PIECE_BYTES = 1024 * 1024
_GAP = Told(Row("[orch] left out", 0), Origin())


@dataclass(frozen=True)
class LogReading(Located):
    failures: tuple[FailureFound, ...]
    """Each once, in the order in which they begin."""
    cause: int | None = field(metadata=OWN_WORDS)
    """Which of the failures the others follow from, as far as the log tells."""
    tracebacks: tuple[Traceback, ...]
    steps: tuple[StepTold, ...]
    """The last MAX_STEPS."""
    rate: RateTold | None
    """The last one printed."""
    typical_rate: RateTold | None = field(metadata=OWN_WORDS)
    skipped_steps: int = field(metadata=OWN_WORDS)

    @property
    def root(self) -> FailureFound | None:
        return None if self.cause is None else self.failures[self.cause]


def read_log(text: str) -> LogReading:
    """Spans are in characters of `text`."""
    if len(text) <= WHOLE_BYTES:
        rows = rows_of(text)
        return _reading(told_rows(rows), rows, rows)
    return read_log_pieces([text.encode("utf-8", "surrogateescape")])


def read_log_pieces(pieces: Iterable[bytes]) -> LogReading:
    """Of a log that does not fit into memory. Spans are in characters from its begin; bytes that are no UTF-8
    are one each."""
    scan = LogScan(NEEDLES)
    for piece in pieces:
        for begin in range(0, len(piece), PIECE_BYTES):
            scan.feed(piece[begin : begin + PIECE_BYTES])
    telling, tail = scan.finish()
    told: list[Told] = []
    end: int | None = None
    for kept in telling:
        if end is not None and kept.start != end:
            told.append(_GAP)
        text = _text(kept)
        told += told_rows(_moved(rows_of(text), kept.start))
        end = kept.start + len(text)
    last = "".join([_text(kept) for kept in tail])
    rows = _moved(rows_of(last), tail[0].start if tail else 0)
    return _reading(told, rows, ())


def _text(kept: Kept) -> str:
    return kept.data.decode("utf-8", "surrogateescape")


def _moved(rows: list[Row], start: int) -> list[Row]:
    if not start:
        return rows
    return [
        Row(row.text, row.start + start, None if row.places is None else [place + start for place in row.places])
        for row in rows
    ]


def _reading(told: Sequence[Told], progress_rows: Sequence[Row], pane_rows: Sequence[Row]) -> LogReading:
    """pane_rows: those that may have been wrapped by a terminal."""
    progress = progress_of([Told(row, _origin(row)) for row in progress_rows])
    reading = _of_rows(told, progress)
    pane = joined_pane(pane_rows) if 1 < len(pane_rows) <= PANE_ROWS else None
    if pane is None:
        return reading
    again = _of_rows(told_rows(pane.rows), progress_of([Told(row, _origin(row)) for row in pane.rows]))
    return _both(again, reading, reading.steps) if pane.is_sure else _both(reading, again, ())


def _origin(row: Row) -> Origin:
    return told_rows([row])[0].origin if row.text.startswith(("[", "(")) else Origin()


def _of_rows(told: Sequence[Told], progress: Progress) -> LogReading:
    tracebacks = find_tracebacks(told)
    if len(tracebacks) > MAX_TRACEBACKS:
        tracebacks = (*tracebacks[: MAX_TRACEBACKS // 2], *tracebacks[-MAX_TRACEBACKS // 2 :])
    failures = find_failures(told, tracebacks, _last_progress(progress.steps))
    failures = tuple(sorted([*failures, *_of_progress(progress, failures)], key=lambda each: each.span.start))
    root = root_of(failures)
    return LogReading(
        failures=failures,
        cause=None if root is None else failures.index(root),
        tracebacks=tracebacks,
        steps=progress.steps[-MAX_STEPS:],
        rate=progress.rate,
        typical_rate=progress.typical_rate,
        skipped_steps=sum(each.count for each in failures if each.kind == "skipped_steps"),
    )


def _last_progress(steps: Sequence[StepTold]) -> int | None:
    """Where the last row but one stands that told of a further step than all before it: one more step may still be
    printed by others than the one that failed."""
    furthest = -1
    places: list[int | None] = [None, None]
    for step in steps:
        if step.step is not None and step.step > furthest:
            furthest, places = step.step, [places[1], step.span.start]
    return places[0]


def _of_progress(progress: Progress, failures: Sequence[FailureFound]) -> list[FailureFound]:
    """A loss that is no number any more; one of exactly 0 beside gradients that are not."""
    if any(each.kind == "divergence" for each in failures):
        return []
    for step in progress.steps:
        if step.loss is not None and not math.isfinite(step.loss) and "loss" in step.spans:
            values = {"loss": Value(str(step.loss), step.spans["loss"])}
            if step.step is not None and "step" in step.spans:
                values["step"] = Value(step.step, step.spans["step"])
            return [
                _noted(
                    "divergence",
                    f"loss {step.loss} at step {step.step}" if step.step is not None else f"loss {step.loss}",
                    step.span,
                    values,
                    step.ranks,
                )
            ]
    for step in progress.steps:
        norm = step.measured.get("grad_norm")
        if step.loss == 0.0 and norm is not None and norm.value != 0 and "loss" in step.spans:
            values = {"loss": Value(0.0, step.spans["loss"]), "grad_norm": Value(norm.value, norm.spans["value"])}
            return [_noted("suspect_loss", "loss 0.0", step.span, values, step.ranks)]
    return []


def _noted(kind: str, line: str, span: Span, values: dict[str, Value], ranks: tuple[int, ...]) -> FailureFound:
    about = KINDS[kind]
    spans = {name: span for name in ("kind", "line", "ranks")}
    return FailureFound(
        kind=kind,
        title=about.title,
        role=str(about.role),
        remedy=about.remedy,
        line=line,
        values=values,
        ranks=ranks,
        count=1,
        tellings=(),
        is_first=False,
        silent_ranks=(),
        survived=False,
        traceback=None,
        spans=spans,
    )


def _both(believed: LogReading, other: LogReading, other_steps: tuple[StepTold, ...]) -> LogReading:
    """What the second alone tells is added to the first; its steps only where the first tells of none."""
    tracebacks = list(believed.tracebacks)
    tracebacks += [each for each in other.tracebacks if not any(_overlap(each.span, one.span) for one in tracebacks)]
    failures = list(believed.failures)
    for each in other.failures:
        same = next((n for n, one in enumerate(failures) if one.kind == each.kind), None)
        if same is not None:
            failures[same] = replace(failures[same], values={**each.values, **failures[same].values})
        elif each.kind != "exception":
            failures.append(replace(each, traceback=None))
    failures.sort(key=lambda each: each.span.start)
    root = root_of(failures)
    return LogReading(
        failures=tuple(failures),
        cause=None if root is None else failures.index(root),
        tracebacks=tuple(sorted(tracebacks, key=lambda each: each.span.start))
        if other.tracebacks
        else believed.tracebacks,
        steps=believed.steps or other_steps,
        rate=believed.rate,
        typical_rate=believed.typical_rate,
        skipped_steps=max(believed.skipped_steps, other.skipped_steps),
    )


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


NEEDLES: tuple[str, ...] = (
    "traceback (most recent call",
    'file "',
    "exception in thread",
    "exception ignored",
    "during handling of the above",
    "the above exception was",
    "with the following error",
    "invoked oom",
    *BLOCK_NEEDLES,
    *(needle for sought in SIGNATURES for needle in sought.needles),
)
