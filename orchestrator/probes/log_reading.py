"""A training's log, read: its progress, its tracebacks, its failures and which of them is the cause.

Rule: one reader for a tail, a pane and a log of gigabytes. It is linear in its input and holds no more than a bounded
part of it; every value says where it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.probes.failures.dumps import NEEDLES as BLOCK_NEEDLES
from orchestrator.probes.failures.found import FailureFound
from orchestrator.probes.failures.kinds import KINDS
from orchestrator.probes.failures.search import RETRIED, SIGNATURES, find_failures, root_of
from orchestrator.probes.log_scan import LogScan, Part
from orchestrator.probes.pane import joined_pane
from orchestrator.probes.progress import Progress, RateTold, StepTold, progress_of
from orchestrator.probes.rows import MAX_ROW_CHARS, Origin, Row, Told, moved, outdented, peeled, rows_of, told_rows
from orchestrator.probes.spans import OWN_WORDS, Located, Span, Value
from orchestrator.probes.traceback_facts import Traceback
from orchestrator.probes.traceback_words import WRAPPERS
from orchestrator.probes.tracebacks import find_tracebacks

WHOLE_CHARS = 256 * 1024
"""Up to here all of it is read; of more, what the scan keeps."""
MAX_STEPS = 1000
PROGRESS_ROWS = 1000
"""Of the log's last rows so many are read for progress."""
MAX_ROWS = 10_000
"""Of the rows that may tell of failures so many of the first and of the last are read."""
MAX_TRACEBACKS = 256
END_CHARS = 64 * 1024
"""Of a log's end so much is read whatever it says."""
PANE_ROWS = 5000
PIECE_BYTES = 1024 * 1024
LAST_ROWS = 10
SEARCHED_ROWS = 400
"""Stacks of launchers are no longer."""
_RAISED = re.compile(r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Exit))(?:: \S|$)")
GENERAL = frozenset({"exception", "cuda_error", "nccl_error", "stack_dump"})
"""Kinds that a row may be taken for whose words were cut."""


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
    if len(text) <= WHOLE_CHARS:
        part = Part(0, text)
        return _reading([part], part, part if text.count("\n") < PANE_ROWS else None)
    try:
        return read_log_pieces([text.encode()], is_utf8=True)
    except UnicodeEncodeError:
        return read_log_pieces([text.encode("utf-8", "surrogateescape")])


def read_log_pieces(pieces: Iterable[bytes], *, is_utf8: bool = False) -> LogReading:
    """Of a log that does not fit into memory, cut anywhere. Spans are in characters from its begin; bytes that are no
    UTF-8 are one each. is_utf8: it is known to be valid, which spares decoding it."""
    scan = LogScan(NEEDLES, is_utf8=is_utf8)
    for piece in pieces:
        for begin in range(0, len(piece), PIECE_BYTES):
            scan.feed(piece[begin : begin + PIECE_BYTES])
    telling, tail = scan.finish()
    last = Part(tail[0].start if tail else 0, "".join([part.text for part in tail]))
    read_to = max([part.start + len(part.text) for part in telling], default=0)
    begin = max(read_to, last.start + len(last.text) - END_CHARS)
    unread = Part(begin, last.text[begin - last.start :] if begin >= last.start else last.text)
    return _reading([*telling, unread], last, None)


def _reading(telling: Sequence[Part], tail: Part, pane: Part | None) -> LogReading:
    """pane: what a terminal may have wrapped."""
    progress_rows = _rows(_last_rows(tail, PROGRESS_ROWS))
    progress = progress_of(progress_rows)
    reading = _of_rows(_told(telling), progress)
    wrapped = joined_pane(outdented([each.row for each in _rows(pane)])) if pane is not None else None
    if wrapped is None:
        return reading
    told = told_rows(wrapped.rows)
    again = _of_rows(told, progress_of(told_progress(wrapped.rows[-PROGRESS_ROWS:])))
    if wrapped.is_sure:
        return _both(again, reading, reading.steps, is_joined=False)
    return _both(reading, again, (), is_joined=True)


def _told(parts: Sequence[Part]) -> list[Told]:
    """Rows of the first parts and of the last, MAX_ROWS each."""
    first, rest = _until(parts, MAX_ROWS)
    last, _ = _until([part for part in reversed(rest)], MAX_ROWS, from_end=True)
    told: list[Told] = []
    end: int | None = None
    for part in [*first, *reversed(last)]:
        if end is not None and part.start != end:
            told.append(Told(Row("[orch] left out", end), Origin()))
        told += told_rows(moved(rows_of(part.text), part.start))
        end = part.start + len(part.text)
    return told


def _until(parts: Sequence[Part], budget: int, *, from_end: bool = False) -> tuple[list[Part], list[Part]]:
    """(parts of so many rows, what is left)."""
    taken: list[Part] = []
    for index, part in enumerate(parts):
        rows = part.text.count("\n") + part.text.count("\r") + 1
        if rows > budget:
            if from_end:
                return [*taken, _last_rows(part, budget)], []
            head = "\n".join(part.text.replace("\r", "\n").split("\n", budget)[:budget])
            cut = len(head) + 1
            left = Part(part.start + cut, part.text[cut:])
            return [*taken, Part(part.start, part.text[:cut])], [left, *parts[index + 1 :]]
        budget -= rows
        taken.append(part)
    return taken, []


def _last_rows(part: Part, count: int) -> Part:
    cut = part.text.replace("\r", "\n").rsplit("\n", count)
    begin = len(cut[0]) + 1 if len(cut) > count else 0
    return Part(part.start + begin, part.text[begin:])


def _rows(part: Part) -> list[Told]:
    return told_progress(moved(rows_of(part.text), part.start))


def told_progress(rows: Sequence[Row]) -> list[Told]:
    """Lines of metrics as they are: only who wrote them is taken from what stands in front."""
    return [Told(row, peeled(row).origin if row.text.startswith(("[", "(")) else Origin()) for row in rows]


def _of_rows(told: Sequence[Told], progress: Progress) -> LogReading:
    tracebacks = find_tracebacks(told)
    if len(tracebacks) > MAX_TRACEBACKS:
        tracebacks = (*tracebacks[: MAX_TRACEBACKS // 2], *tracebacks[-MAX_TRACEBACKS // 2 :])
    failures = find_failures(told, tracebacks, _last_progress(progress.steps))
    failures = _without_the_end(failures, progress.steps)
    failures = tuple(sorted([*failures, *_of_progress(progress, failures)], key=lambda each: each.span.start))
    root = root_of(failures)
    if (root is None or root.kind == "worker_failed") and (
        last := _raised_last(told, tracebacks, progress.steps)
    ) is not None:
        failures, root = tuple(sorted([*failures, last], key=lambda each: each.span.start)), last
    return LogReading(
        failures=failures,
        cause=None if root is None else failures.index(root),
        tracebacks=tracebacks,
        steps=progress.steps[-MAX_STEPS:],
        rate=progress.rate,
        typical_rate=progress.typical_rate,
        skipped_steps=sum(_told_count(each) for each in failures if each.kind == "skipped_steps"),
    )


def _raised_last(
    told: Sequence[Told], tracebacks: Sequence[Traceback], steps: Sequence[StepTold]
) -> FailureFound | None:
    """The end of a traceback whose begin was not copied: an exception by its name. Nothing is tried again behind it,
    and no step follows."""
    said: list[Told] = []
    for each in reversed(told[-SEARCHED_ROWS:]):
        if each.text.strip() and not any(_overlap(one.span, each.row.span()) for one in tracebacks):
            said.insert(0, each)
        if len(said) == LAST_ROWS:
            break
    is_handed_on = bool(tracebacks) and all(each.origin.is_stamped for each in said)  # by who stamps each row
    for number, each in reversed(list(enumerate(said))):
        found = _RAISED.match(each.text) if is_handed_on or not each.origin.is_stamped else None
        if found is None or each.text.startswith("KeyboardInterrupt") or WRAPPERS.match(found["type"]):
            continue
        span = each.row.span()
        if any(RETRIED.search(other.text[:MAX_ROW_CHARS]) for other in said[number : number + 4]):
            return None
        if any(step.span.start > span.start for step in steps):
            return None
        values = {"exception_type": Value(found["type"], each.row.span(*found.span("type")))}
        ranks = () if each.origin.rank is None else (each.origin.rank,)
        return _noted("exception", each.text.strip(), span, values, ranks)
    return None


def _told_count(failure: FailureFound) -> int:
    """A telling may be of several, and say so."""
    told = [each.values for each in failure.tellings] or [failure.values]
    counts = [values["count"].value if "count" in values else 1 for values in told]
    return sum(count for count in counts if isinstance(count, int)) + failure.count - len(told)


def _without_the_end(failures: Sequence[FailureFound], steps: Sequence[StepTold]) -> tuple[FailureFound, ...]:
    """A training that came to its last step: of its ranks one ends first, and the others miss its store."""
    last = next((step for step in reversed(steps) if step.step is not None), None)
    if last is None or last.total_steps is None or last.step != last.total_steps:
        return tuple(failures)
    return tuple(each for each in failures if each.kind != "store_lost" or each.span.start < last.span.start)


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
            return [_noted("divergence", progress.line_of(step), step.span, values, step.ranks)]
    for step in progress.steps:
        norm = step.measured.get("grad_norm")
        told_nan = norm is not None and norm.value is not None and math.isnan(norm.value)
        if step.loss == 0.0 and norm is not None and told_nan and "loss" in step.spans:
            # transformers prints a NaN loss as 0 (`logging_nan_inf_filter`)
            values = {"loss": Value(0.0, step.spans["loss"]), "grad_norm": Value("nan", norm.spans["value"])}
            return [_noted("divergence", progress.line_of(step), step.span, values, step.ranks)]
        line = progress.line_of(step) if step.loss == 0.0 else ""
        if "'reward'" in line or (line.startswith("{") and not line.endswith("}")):
            continue  # GRPO: the loss itself is about 0, its gradients are not. The rest of a cut row may say so
        if step.loss == 0.0 and norm is not None and norm.value != 0 and "loss" in step.spans:
            values = {"loss": Value(0.0, step.spans["loss"]), "grad_norm": Value(norm.value, norm.spans["value"])}
            return [_noted("suspect_loss", progress.line_of(step), step.span, values, step.ranks)]
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


def _both(believed: LogReading, other: LogReading, other_steps: tuple[StepTold, ...], *, is_joined: bool) -> LogReading:
    """What the second alone tells is added to the first; its steps only where the first tells of none. is_joined: the
    second is of joined rows, and where a row was cut it knows better what it tells."""
    tracebacks = list(believed.tracebacks)
    tracebacks += [each for each in other.tracebacks if not any(_overlap(each.span, one.span) for one in tracebacks)]
    failures = list(believed.failures)
    for each in other.failures:
        same = next((n for n, one in enumerate(failures) if one.kind == each.kind), None)
        if same is not None:
            failures[same] = replace(failures[same], values={**each.values, **failures[same].values})
        elif is_joined and each.kind not in GENERAL:
            failures = [one for one in failures if one.kind not in GENERAL or not _same_rows(one, each)]
            failures.append(replace(each, traceback=None))
        elif not any(_same_rows(one, each) for one in failures):
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


def _same_rows(one: FailureFound, other: FailureFound) -> bool:
    return _overlap(one.spans["line"], other.spans["line"])


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
    *("loss nan", "loss is nan", "nan loss", "nan encountered", "nan detected", "returned nan"),
    *("unexpected result nan", "found nan in"),
    *(needle for sought in SIGNATURES for needle in sought.needles if needle != "nan"),
)
