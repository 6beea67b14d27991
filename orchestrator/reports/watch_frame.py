"""PURE: one frame of `orch status --watch`, and the one line that stands for it where there is no terminal.

Rule: what matters most comes first and goes last; no line is wider than asked for; colour only repeats what words say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.ledger.records import RunRecord
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.text import plain_text
from orchestrator.probes.training import RunPhase
from orchestrator.reports.fitting import CUT, clip, fold, pack
from orchestrator.reports.status import (
    StatusReport,
    container_text,
    failure_text,
    how_it_goes,
    progress_of,
    release_text,
    result_lines,
    session_text,
)
from orchestrator.reports.table import DASH, bytes_text, duration_text

LABEL_COLUMNS = 11
MIN_WIDTH = 40
MANY_GPUS = 4
"""More than these share lines when there is little height."""
LOG_LINES_WANTED = 3
FEW_OTHERS = 2
"""Lines below a failure that is too long for the screen."""


class Tone(Enum):
    PLAIN = "plain"
    TITLE = "title"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    DIM = "dim"


@dataclass(frozen=True)
class Line:
    text: str
    tone: Tone = Tone.PLAIN


Block = list[Line]


def render_frame(report: StatusReport, *, width: int, height: int | None) -> list[Line]:
    """At most `height` lines; None: all there is to say, failures whole, as it stays on the screen at the end."""
    width = max(width, MIN_WIDTH)
    top = _header(report, width) + _run(report, width)
    trouble = _failure(report, width, whole=height is None)
    if height is None:
        return [*top, *trouble, *_gpus(report, width, compact=False), *_rest(report, width), *_log(report, width)]
    gpus = _gpus(report, width, compact=False)
    rest = _rest(report, width)
    wanted = len(trouble) if trouble else min(LOG_LINES_WANTED, len(report.last_lines))
    if len(top) + len(gpus) + len(rest) + wanted > height:
        gpus = _gpus(report, width, compact=True)
    room = height - len(top) - len(gpus)
    if trouble:
        trouble = _end_of(trouble, max(3, height - len(top) - FEW_OTHERS))
        body = [*trouble, *gpus, *rest]
    else:
        log = _log(report, width)
        rest = rest[: max(0, room - min(wanted, len(log)))] if len(rest) + wanted > room else rest
        free = max(0, room - len(rest))
        body = [*gpus, *rest, *(log[-free:] if free else [])]
    return [*top, *body][:height]


def render_change(report: StatusReport) -> str:
    """One line, for a file or a pipe."""
    parts = [f"{report.target}: {_link_text(report)}"] if not report.link.connected else [f"{report.target}:"]
    if report.run is None:
        return " ".join([*parts, "no run yet"])
    said = [report.run.run_id, *how_it_goes(report), *progress_of(report)]
    if report.gpu_error:
        said.append(f"GPUs: {report.gpu_error}")
    elif report.gpus:
        said.append("GPUs " + " ".join(_short_gpu(gpu) for gpu in report.gpus))
    return " ".join([*parts, ", ".join(said)])


def change_key(report: StatusReport) -> tuple[object, ...]:
    """What of a report is news; times, and memory that goes up and down, are not."""
    run, said = report.run, report.throughput
    return (
        report.link.connected,
        report.gpu_error,
        report.compiling and report.compiling.number,
        said and (said.step, said.loss),
        run and (run.run_id, run.state.phase, run.state.exit, run.state.notes, run.session and run.session.present),
        run and run.status and (run.status.phase, run.status.step, run.status.detail),
    )


def _header(report: StatusReport, width: int) -> Block:
    if report.link.connected:
        return [Line(clip(report.label, width), Tone.TITLE)]
    return [Line(clip(report.label, width), Tone.TITLE), *_row("link", [_link_text(report)], width, Tone.BAD)]


def _link_text(report: StatusReport) -> str:
    link = report.link
    why = f" ({link.why})" if link.why else ""
    return f"down for {duration_text(link.since_s)}; what follows is {duration_text(link.facts_age_s)} old{why}"


def _run(report: StatusReport, width: int) -> Block:
    run = report.run
    if run is None:
        return _row("run", ["none yet"], width)
    lines = _row("run", [run.run_id, *how_it_goes(report)], width, _tone(run))
    if parts := progress_of(report):
        lines += _row("training", parts, width)
    for number, line in enumerate(result_lines(run.result)):
        lines += _row("" if number else "result", [line], width)
    for note in run.state.notes:
        lines += _row("note", [note], width, Tone.WARN)
    return lines


def _tone(run: RunRecord) -> Tone:
    if run.failed:
        return Tone.BAD
    if run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        return Tone.GOOD
    return Tone.PLAIN


def _failure(report: StatusReport, width: int, *, whole: bool) -> Block:
    """The traceback of the run that is shown, when it failed."""
    if not report.traceback:
        return []
    lines = report.traceback.splitlines()
    if not whole:
        lines = [piece for line in lines for piece in fold(line, width)]
    return [Line(""), *(Line(line, Tone.BAD) for line in lines), Line("")]


def _end_of(block: Block, height: int) -> Block:
    """Its end, which names what was raised, and how much is above it."""
    if len(block) <= height:
        return block
    hidden = len(block) - height + 1
    return [Line(f"{CUT} {hidden} lines above: orch logs --traceback", Tone.DIM), *block[hidden:]]


def _gpus(report: StatusReport, width: int, *, compact: bool) -> Block:
    if report.gpus is None:
        return _row("GPUs", [report.gpu_error or DASH], width, Tone.WARN if report.gpu_error else Tone.PLAIN)
    if not report.gpus:
        return _row("GPUs", ["none"], width)
    lines = _row("GPUs", [_gpu_error(report)], width, Tone.WARN) if report.gpu_error else []
    if compact and len(report.gpus) > MANY_GPUS:
        about = {(gpu.name, gpu.memory_total_mib) for gpu in report.gpus}
        name, total = next(iter(about)) if len(about) == 1 else (None, None)
        parts = [f"{len(report.gpus)} {name or 'GPUs'}" + (f", {total} MiB each" if total is not None else "")]
        lines += _row("" if lines else "GPUs", parts, width)
        return lines + _row("", [f"{_index(gpu)}: {_short_gpu(gpu)}" for gpu in report.gpus], width, between="  ")
    for gpu, text in zip(report.gpus, _gpu_rows(report.gpus), strict=True):
        lines += _row("" if lines else "GPUs", [f"{_index(gpu)}  {text}"], width)
    return lines


def _gpu_error(report: StatusReport) -> str:
    old = "" if report.gpus_age_s is None else f"; what follows is {duration_text(report.gpus_age_s)} old"
    return f"{report.gpu_error}{old}"


def _gpu_rows(gpus: Sequence[GpuFact]) -> list[str]:
    """Numbers first: a long name may be clipped, they may not."""
    used = [DASH if gpu.memory_used_mib is None else str(gpu.memory_used_mib) for gpu in gpus]
    total = [DASH if gpu.memory_total_mib is None else str(gpu.memory_total_mib) for gpu in gpus]
    busy = [DASH if gpu.utilization_percent is None else f"{gpu.utilization_percent} %" for gpu in gpus]
    wide = [max(map(len, column)) for column in (used, total, busy)]
    return [
        f"{u.rjust(wide[0])} of {t.rjust(wide[1])} MiB  {b.rjust(wide[2])}  {gpu.name or DASH}"
        for u, t, b, gpu in zip(used, total, busy, gpus, strict=True)
    ]


def _index(gpu: GpuFact) -> str:
    return DASH if gpu.index is None else str(gpu.index)


def _short_gpu(gpu: GpuFact) -> str:
    used = DASH if gpu.memory_used_mib is None else f"{gpu.memory_used_mib / 1024:.1f}G"
    busy = DASH if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"
    return f"{used} {busy}"


def _rest(report: StatusReport, width: int) -> Block:
    """By how much it is missed: the last ones go first."""
    lines: Block = []
    if report.failure is not None and (report.run is None or report.failure.run_id != report.run.run_id):
        lines += _row("last fail", [failure_text(report.failure, report.now_s)], width)
    if report.run is not None:
        lines += _row("session", [session_text(report.run)], width)
    if report.container is not None:
        lines += _row("container", container_text(report.container).split(", "), width)
    if report.cache is not None:
        entries = DASH if report.cache.entries is None else str(report.cache.entries)
        old = [] if report.cache.age_s is None else [f"counted {duration_text(report.cache.age_s)} ago"]
        lines += _row("cache", [bytes_text(report.cache.bytes), f"{entries} graphs", *old], width)
    lines += _row("disk", [f"{bytes_text(report.disk_free_bytes)} free"], width)
    if report.run is not None and report.run.last_checkpoint is not None:
        lines += _row("checkpoint", [report.run.last_checkpoint.name], width)
    return lines + _row("release", [release_text(report)], width)


def _log(report: StatusReport, width: int) -> Block:
    return [Line(clip(f"| {line.expandtabs(4)}", width), Tone.DIM) for line in report.last_lines]


def _row(label: str, parts: Iterable[str], width: int, tone: Tone = Tone.PLAIN, between: str = ", ") -> Block:
    plain = [plain_text(part).replace("\n", " ").replace("\t", " ") for part in parts]
    packed = pack(plain, width - LABEL_COLUMNS, between)
    return [
        Line((label if number == 0 else "").ljust(LABEL_COLUMNS) + text, tone) for number, text in enumerate(packed)
    ]
