"""PURE: one frame of `orch status --watch`, and the one line that stands for it where there is no terminal.

Rule: what matters most comes first and goes last; no line is wider than asked for; colour only repeats what words say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from orchestrator.diagnosis.finding import CRITICAL
from orchestrator.ledger.records import RunRecord
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.text import one_line, plain_text
from orchestrator.probes.training import RunPhase
from orchestrator.reports.fitting import CUT, clip, fold, pack
from orchestrator.reports.gpu_rows import gpu_rows
from orchestrator.reports.status import (
    StatusReport,
    container_text,
    failure_text,
    finding_words,
    gpu_trouble,
    how_it_goes,
    progress_of,
    release_text,
    result_lines,
    session_text,
)
from orchestrator.reports.table import DASH, bytes_text, duration_text, number_text
from orchestrator.reports.training import compiled_text
from orchestrator.reports.trend import Trend, sparkline

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


def render_frame(
    report: StatusReport, *, width: int, height: int | None, trend: Trend | None = None, bars: bool = True
) -> list[Line]:
    """At most `height` lines; None: all there is to say, failures whole, as it stays on the screen at the end.

    trend: what the watch has seen so far; bars: the terminal can show them.
    """
    width = max(width, MIN_WIDTH)
    top = _header(report, width) + _run(report, width)
    trouble = _failure(report, width, whole=height is None)
    gpus = _gpus(report, width, compact=False)
    rest = [*_course(report, trend, width, bars), *_rest(report, trend, width)]
    if height is None:
        return [*top, *trouble, *gpus, *rest, *_log(report, width)]
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
    said += [*finding_words(report), *gpu_trouble(report)]
    return " ".join([*parts, ", ".join(said)])


def change_key(report: StatusReport) -> tuple[object, ...]:
    """What of a report is news; times, and memory that goes up and down, are not."""
    run, said = report.run, report.throughput
    return (
        report.link.connected,
        report.gpu_error,
        gpu_trouble(report),
        tuple((one.id, one.severity) for one in report.findings or ()),
        report.compiling and report.compiling.number,
        said and (said.step, said.loss),
        run and (run.run_id, run.state.phase, run.state.exit, run.state.notes, run.session and run.session.present),
        run and run.status and (run.status.phase, run.status.step, run.status.detail),
    )


def _header(report: StatusReport, width: int) -> Block:
    if report.link.connected:
        return [Line(clip(report.label, width), Tone.TITLE)]
    why = fold(one_line(report.link.why or "", 400), width - LABEL_COLUMNS)
    return [
        Line(clip(report.label, width), Tone.TITLE),
        *_row("link", [_link_age(report)], width, Tone.BAD),
        *(Line(" " * LABEL_COLUMNS + line, Tone.BAD) for line in why if line),
    ]


def _link_age(report: StatusReport) -> str:
    link = report.link
    return f"down for {duration_text(link.since_s)}; what follows is {duration_text(link.facts_age_s)} old"


def _link_text(report: StatusReport) -> str:
    return _link_age(report) + (f" ({report.link.why})" if report.link.why else "")


def _run(report: StatusReport, width: int) -> Block:
    run = report.run
    if run is None:
        return _row("run", ["none yet"], width)
    lines = _row("run", [run.run_id, *how_it_goes(report)], width, _tone(run))
    if parts := progress_of(report):
        lines += _row("training", parts, width)
    if run.status is not None and run.status.compiled and (compiled := compiled_text(run.status.compiled)):
        slow = any(run.status.compiled.get(name) for name in ("fallbacks", "recompiles", "tracing_stuck"))
        lines += _row("compiled", [compiled], width, Tone.WARN if slow else Tone.PLAIN)
    for warning in run.status.warnings if run.status else ():
        lines += _row("warning", [warning], width, Tone.WARN)
    for number, line in enumerate(result_lines(run.result, brief=True)):
        lines += _row("" if number else "result", [line], width)
    for number, words in enumerate(finding_words(report)):
        lines += _row(
            "" if number else "finding", [words], width, Tone.BAD if words.startswith(CRITICAL) else Tone.WARN
        )
    if report.rate_warning:
        lines += _row("rate", [report.rate_warning], width, Tone.WARN)
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
    """What the run that is shown died of: the traceback, then the cause and the way out, when it failed."""
    lines = (report.traceback or "").splitlines()
    why = report.why
    if not lines and not why:
        return []
    if not whole:
        lines = [piece for line in lines for piece in fold(line, width)]
        why = [piece for line in why for piece in fold(line, width)]
    return [Line(""), *(Line(line, Tone.BAD) for line in lines), *(Line(line, Tone.WARN) for line in why), Line("")]


def _end_of(block: Block, height: int) -> Block:
    """Its end, which names what was raised, and how much is above it."""
    if len(block) <= height:
        return block
    hidden = len(block) - height + 1
    return [Line(f"{CUT} {hidden} lines above: orch logs --traceback", Tone.DIM), *block[hidden:]]


def _gpus(report: StatusReport, width: int, *, compact: bool) -> Block:
    gpus = report.gpus
    if gpus is None:
        lines = _row("GPUs", [report.gpu_error or DASH], width, Tone.WARN if report.gpu_error else Tone.PLAIN)
    elif not gpus:
        lines = _row("GPUs", ["none"], width)
    else:
        lines = _row("GPUs", [_gpu_error(report)], width, Tone.WARN) if report.gpu_error else []
        if compact and len(gpus) > MANY_GPUS:
            about = {(gpu.name, gpu.memory_total_mib) for gpu in gpus if gpu.error is None}
            name, total = next(iter(about)) if len(about) == 1 else (None, None)
            parts = [f"{len(gpus)} {name or 'GPUs'}" + (f", {total} MiB each" if total is not None else "")]
            lines += _row("" if lines else "GPUs", parts, width)
            lines += _row("", [f"{_index(gpu)}: {_short_gpu(gpu)}" for gpu in gpus], width, between="  ")
        else:
            texts = gpu_rows(gpus, report.gpu_roles, width - LABEL_COLUMNS - 3)
            for gpu, text in zip(gpus, texts, strict=True):
                tone = Tone.BAD if gpu.error else Tone.PLAIN
                lines += _row("" if lines else "GPUs", [f"{_index(gpu)}  {text}"], width, tone)
    in_rows = {f"GPU {gpu.index}: {gpu.error}" for gpu in gpus or () if gpu.error and not compact}
    for warning in gpu_trouble(report):
        if warning not in in_rows:
            lines += _row("warning", [warning], width, Tone.WARN)
    return lines


def _course(report: StatusReport, trend: Trend | None, width: int, bars: bool) -> Block:
    """How it went so far, and who waits for whom."""
    lines: Block = []
    if trend is not None and bars and report.run is not None:
        series = [("loss", trend.loss), ("speed", trend.rate)]
        drawn = [(name, one) for name, one in series if len(one.points) > 1]
        each = (width - LABEL_COLUMNS) // max(1, len(drawn)) - 8
        parts = [f"{name} {sparkline([point.mean for point in one.points], each)}" for name, one in drawn]
        since = f"since step {drawn[0][1].first_step}" if drawn else ""
        lines += _row("trend", [*parts, since], width, between="  ") if parts else []
    status = report.run.status if report.run else None
    if status is not None and status.wait_shares and not _is_over(report):
        shares = [f"{role} {share:.0%}" for role, share in status.wait_shares.items()]
        lines += _row("waiting", [", ".join(shares) + " of their time at the queue"], width)
    return lines


def _is_over(report: StatusReport) -> bool:
    return report.run is not None and report.run.state.phase not in (RunPhase.RUNNING, RunPhase.STARTING)


def _gpu_error(report: StatusReport) -> str:
    old = "" if report.gpus_age_s is None else f"; what follows is {duration_text(report.gpus_age_s)} old"
    return f"{report.gpu_error}{old}"


def _index(gpu: GpuFact) -> str:
    return number_text(gpu.index)


def _short_gpu(gpu: GpuFact) -> str:
    if gpu.error:
        return "no answer"
    used = DASH if gpu.memory_used_mib is None else f"{gpu.memory_used_mib / 1024:.1f}G"
    busy = DASH if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"
    return f"{used} {busy}"


def _rest(report: StatusReport, trend: Trend | None, width: int) -> Block:
    """By how much it is missed: the last ones go first."""
    lines: Block = []
    if report.failure is not None and (report.run is None or report.failure.run_id != report.run.run_id):
        lines += _row("last fail", [failure_text(report.failure, report.now_s)], width)
    if report.run is not None:
        lines += _row("session", [session_text(report.run)], width)
    if report.container is not None:
        lines += _row("container", container_text(report.container).split(", "), width)
    if report.cache is not None:
        held = ["empty"]
        if report.cache.bytes is not None:
            held = [bytes_text(report.cache.bytes), f"{number_text(report.cache.entries)} graphs"]
        old = [] if report.cache.age_s is None else [f"counted {duration_text(report.cache.age_s)} ago"]
        new = [] if report.cache.new_files is None else [f"{report.cache.new_files} files new since the launch"]
        lines += _row("cache", [*held, *new, *_growth(trend), *old], width)
    if report.cache_warning is not None:
        lines += _row("", [report.cache_warning], width, Tone.WARN)
    lines += _row("disk", [f"{bytes_text(report.disk_free_bytes)} free"], width)
    if report.run is not None and report.run.last_checkpoint is not None:
        lines += _row("checkpoint", [report.run.last_checkpoint.name], width)
    return lines + _row("release", [release_text(report)], width)


def _growth(trend: Trend | None) -> list[str]:
    grown = trend.cache_grown_bytes if trend else None
    if not grown or trend is None:
        return []
    return [f"{'+' if grown > 0 else '-'}{bytes_text(abs(grown))} in {duration_text(trend.cache_since_s)}"]


def _log(report: StatusReport, width: int) -> Block:
    return [Line(clip(f"| {line.expandtabs(4)}", width), Tone.DIM) for line in report.last_lines]


def _row(label: str, parts: Iterable[str], width: int, tone: Tone = Tone.PLAIN, between: str = ", ") -> Block:
    plain = [plain_text(part).replace("\n", " ").replace("\t", " ") for part in parts]
    packed = pack(plain, width - LABEL_COLUMNS, between)
    return [
        Line((label if number == 0 else "").ljust(LABEL_COLUMNS) + text, tone) for number, text in enumerate(packed)
    ]
