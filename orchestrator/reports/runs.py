"""PURE: the runs of a target, a line each; as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.journal import utc_text
from orchestrator.ledger.runs import RunSummary
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, duration_text, render_rows, short
from orchestrator.reports.training import rate_of
from orchestrator.reports.trend import sparkline

SCHEMA = "orch.runs/1"
ADOPTED = "adopted"
"""In the place of a release: it runs no files of orch's."""
NARROW = ("started", "checkpoints", "git", "release", "trend", "tau", "took")
"""Columns a narrow terminal does without, the first first: the run's id begins with when it was started."""
HEADER = (
    *("run", "started", "took", "ended", "step", "rate", "trend", "tau", "found", "release", "git", "checkpoints"),
)
IF_ANY = ("trend", "tau", "found")
"""Columns that are there only where they have something to say."""
TREND_WIDTH = 16
FOUND = 3
"""Findings that are named."""


@dataclass(frozen=True)
class RunsReport:
    target: str
    label: str
    total: int
    """Runs that there are; more than are shown when only some were asked for."""
    runs: tuple[RunSummary, ...]
    """As they were asked for: the newest first, unless sorted otherwise."""
    fitting: int | None = None
    """How many fit the filters. None: all."""
    last_good: str | None = None
    """The run that others are compared with."""
    only_indexed: int = 0
    """Runs that are no longer on the target, and that this machine's index knows."""
    gone: bool = False
    """These were asked for."""
    synced: int | None = None
    """After --sync: how many were read anew."""
    index_age_s: float | None = None
    """The target could not be asked: this is what the index knew so long ago."""
    unread: int = 0
    """The oldest, beyond as many as are looked at."""
    notes: tuple[str, ...] = ()


def render_runs(report: RunsReport, width: int | None = None) -> str:
    """width: of the terminal, in columns. None: all of it is wanted."""
    head = report.label
    if report.index_age_s is not None:
        head += f": as it was {duration_text(report.index_age_s)} ago, from this machine's index"
    if report.gone:
        head += ": no longer there, from this machine's index"
    lines = [head]
    if report.synced is not None:
        lines.append(f"  in the index: {report.total}; read anew: {report.synced}")
    if not report.runs:
        lines.append("  no runs" + (f" shown of {report.total}" if report.total else ""))
    else:
        rows = [[one_line(cell) for cell in _row(run, report.last_good)] for run in report.runs]
        kept = [at for at, name in enumerate(HEADER) if name not in IF_ANY or any(row[at] != DASH for row in rows)]
        table, left_out = _fitted([[row[at] for at in kept] for row in ([*HEADER], *rows)], width)
        lines.append(table)
        if left_out:
            lines.append(f"  not shown, too narrow: {', '.join(left_out)}")
    return "\n".join([*lines, *_more(report)])


def _more(report: RunsReport) -> list[str]:
    lines = []
    fitting = report.total if report.fitting is None else report.fitting
    if report.runs and fitting > len(report.runs):
        lines.append(f"  {fitting - len(report.runs)} more: orch runs -n {fitting}")
    if report.unread:
        lines.append(f"  {report.unread} older ones are not looked at")
    if report.only_indexed and not report.gone:
        lines.append(f"  {report.only_indexed} more are only in this machine's index: orch runs --gone")
    return lines


def _fitted(rows: list[list[str]], width: int | None) -> tuple[str, list[str]]:
    """The table, and the columns that it does without. rows: the header first."""
    left_out: list[str] = []
    table = render_rows(rows, indent="  ")
    for name in NARROW:
        if width is None or max(map(len, table.splitlines())) <= width:
            break
        if name not in rows[0]:
            continue
        at = rows[0].index(name)
        rows = [row[:at] + row[at + 1 :] for row in rows]
        left_out.append(name)
        table = render_rows(rows, indent="  ")
    return table, left_out


def runs_record(report: RunsReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    return {"schema": SCHEMA, **plain_values(asdict(report))}


def _row(run: RunSummary, last_good: str | None) -> tuple[str, ...]:
    ended = run.outcome.removeprefix("was ") + (f", marked {run.mark.verdict}" if run.mark else "")
    rate = run.throughput.rate if run.throughput else None
    found = [one.id for one in run.findings if one.gone_at is None and one.severity != "info"]
    return (
        run.run_id,
        utc_text(run.started_at).removesuffix(" UTC"),
        duration_text(run.duration_s),
        ended + (", last good" if run.run_id == last_good else "") + (", damaged" if run.broken else ""),
        step_text(run),
        rate_of(rate) if rate else DASH,
        sparkline(run.trend, TREND_WIDTH) if len(run.trend) > 1 else DASH,
        DASH if run.acceptance is None else f"{run.acceptance:.2f}",
        ", ".join(found[:FOUND]) + (f" +{len(found) - FOUND}" if len(found) > FOUND else "") or DASH,
        ADOPTED if run.adopted else short(run.release),
        git_text(run.git_commit, run.git_dirty),
        str(run.checkpoints) if run.checkpoints else DASH,
    )


def step_text(run: RunSummary) -> str:
    if run.step is None:
        return DASH
    return f"{run.step}/{run.total_steps}" if run.total_steps is not None else str(run.step)


def git_text(commit: str | None, dirty: int | None) -> str:
    """`0123456789+3`: with three files that differ from the commit."""
    if commit is None:
        return DASH
    return commit[:10] + (f"+{dirty}" if dirty else "")
