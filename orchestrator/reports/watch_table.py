"""PURE: `orch status --watch` of several targets: a row each.

Rule: what is wrong is said in words at the end of its row, and when not all rows fit, those in trouble are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.text import one_line
from orchestrator.probes.training import RunPhase
from orchestrator.reports.fitting import CUT, clip, text_width
from orchestrator.reports.status import StatusReport, finding_words, gpu_trouble, how_it_goes
from orchestrator.reports.table import DASH, duration_text
from orchestrator.reports.training import loss_text, rate_of
from orchestrator.reports.trend import Trend, sparkline
from orchestrator.reports.watch_frame import MIN_WIDTH, Line, Tone

HEAD = ("target", "run", "step", "loss", "speed", "ETA", "GPUs")
SPARK = 12
NOTE_COLUMNS = 20
"""Where there is less room for what is wrong, the trend is left out."""


@dataclass
class Watched:
    """One target, as far as it has been heard of."""

    target: str
    report: StatusReport | None = None
    error: str | None = None
    """Why there is no report; with one: why there is no newer one."""
    trend: Trend = field(default_factory=Trend)

    def take(self, report: StatusReport) -> None:
        self.report, self.error = report, None
        self.trend.take(report)


def render_table(watched: Sequence[Watched], *, width: int, height: int | None, bars: bool = True) -> list[Line]:
    """At most `height` lines; None: all."""
    width = max(width, MIN_WIDTH)
    shown, hidden = list(watched), 0
    if height is not None and len(shown) + 1 > height:
        keep = max(0, height - 2)
        first = sorted(range(len(shown)), key=lambda at: (_tone(shown[at]) not in (Tone.BAD, Tone.WARN), at))[:keep]
        shown, hidden = [shown[at] for at in sorted(first)], len(shown) - keep
    cells = [HEAD, *map(_cells, shown)]
    wide = [max(text_width(row[column]) for row in cells) for column in range(len(HEAD))]
    used = sum(wide) + 2 * len(wide)
    spark = SPARK if bars and width - used - SPARK - 2 >= NOTE_COLUMNS else 0
    lines = [Line(clip(_line(HEAD, wide, "loss so far".ljust(spark) if spark else "", ""), width), Tone.TITLE)]
    for one, row in zip(shown, cells[1:], strict=True):
        drawn = sparkline([point.mean for point in one.trend.loss.points], spark).ljust(spark)
        lines.append(Line(clip(_line(row, wide, drawn, _note(one)), width), _tone(one)))
    if hidden:
        lines.append(Line(f"{CUT} {hidden} more", Tone.DIM))
    return lines if height is None else lines[:height]


def _line(cells: Sequence[str], wide: Sequence[int], spark: str, note: str) -> str:
    padded = [cell + " " * (columns - text_width(cell)) for cell, columns in zip(cells, wide, strict=True)]
    return "  ".join([*padded, *([spark] if spark else []), note]).rstrip()


def _cells(one: Watched) -> tuple[str, ...]:
    report = one.report
    if report is None:
        return (one.target, "not reached" if one.error else "connecting", *[DASH] * (len(HEAD) - 2))
    said = report.throughput
    over = report.run is None or report.run.state.phase not in (RunPhase.RUNNING, RunPhase.STARTING)
    step = loss = speed = eta = DASH
    if said is not None and said.step is not None:
        step = f"{said.step}" + (f"/{said.total_steps}" if said.total_steps is not None else "")
    if said is not None and said.loss is not None:
        loss = loss_text(said.loss)
    if said is not None and not over:
        speed = DASH if said.rate is None else rate_of(said.rate)
        if said.rate is not None and report.beside_good is not None and report.beside_good.percent is not None:
            speed += f", {report.beside_good.percent:.0f} %"  # of the last good run's
        eta = duration_text(said.eta_s)
    return (one.target, _state(report), step, loss, speed, eta, _gpus(report.gpus))


def _state(report: StatusReport) -> str:
    if report.run is None:
        return "none yet"
    if report.compiling is not None:
        return "compiling"
    return clip(how_it_goes(report)[0].partition(" (pid")[0], 24)


def _gpus(gpus: Sequence[GpuFact] | None) -> str:
    """`8 at 97 %, 69 GiB`: how many, how busy and how full on average."""
    well = [gpu for gpu in gpus or () if gpu.error is None]
    if not well:
        return DASH if gpus is None else f"{len(gpus)}"
    count = f"{len(well)}" if len(well) == len(gpus or ()) else f"{len(well)} of {len(gpus or ())}"
    busy = [gpu.utilization_percent for gpu in well if gpu.utilization_percent is not None]
    used = [gpu.memory_used_mib for gpu in well if gpu.memory_used_mib is not None]
    parts = [f"at {sum(busy) / len(busy):.0f} %"] if busy else []
    parts += [f"{sum(used) / len(used) / 1024:.0f} GiB"] if used else []
    return " ".join([count, ", ".join(parts)]).rstrip()


def _note(one: Watched) -> str:
    report = one.report
    if report is None or one.error is not None:
        return one_line(one.error or "")
    if not report.link.connected:
        old = f"link down, this is {duration_text(report.link.facts_age_s)} old"
        return one_line(f"{old}: {report.link.why}" if report.link.why else old)
    failed = report.failure if report.run and report.run.failed else None
    notes = [failed.exception or failed.how] if failed else []
    notes += [report.gpu_error] if report.gpu_error else []
    notes += [*finding_words(report), *gpu_trouble(report), *(report.run.state.notes if report.run else ())]
    return one_line("; ".join(notes))


def _tone(one: Watched) -> Tone:
    report = one.report
    if report is None:
        return Tone.BAD if one.error else Tone.DIM
    if one.error is not None or not report.link.connected or (report.run is not None and report.run.failed):
        return Tone.BAD
    if report.gpu_error or report.gpu_warnings:
        return Tone.WARN
    return Tone.PLAIN


def by_name(targets: Sequence[str]) -> Mapping[str, Watched]:
    """In the order in which they were named."""
    return {target: Watched(target) for target in targets}
