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

SCHEMA = "orch.runs/1"
NARROW = ("started", "checkpoints", "git", "release", "took")
"""Columns a narrow terminal does without, the first first: the run's id begins with when it was started."""
HEADER = ("run", "started", "took", "ended", "step", "rate", "release", "git", "checkpoints")


@dataclass(frozen=True)
class RunsReport:
    target: str
    label: str
    total: int
    """Runs that there are; more than are shown when only the newest were asked for."""
    runs: tuple[RunSummary, ...]
    """Newest first."""


def render_runs(report: RunsReport, width: int | None = None) -> str:
    """width: of the terminal, in columns. None: all of it is wanted."""
    if not report.runs:
        return f"{report.label}\n  no runs" + (f" shown of {report.total}" if report.total else "")
    rows = [[one_line(cell) for cell in _row(run)] for run in report.runs]
    table, left_out = _fitted([list(HEADER), *rows], width)
    lines = [report.label, table]
    if left_out:
        lines.append(f"  not shown, too narrow: {', '.join(left_out)}")
    if report.total > len(report.runs):
        lines.append(f"  {report.total - len(report.runs)} older: orch runs -n {report.total}")
    return "\n".join(lines)


def _fitted(rows: list[list[str]], width: int | None) -> tuple[str, list[str]]:
    """The table, and the columns that it does without. rows: the header first."""
    left_out: list[str] = []
    table = render_rows(rows, indent="  ")
    for name in NARROW:
        if width is None or max(map(len, table.splitlines())) <= width:
            break
        at = rows[0].index(name)
        rows = [row[:at] + row[at + 1 :] for row in rows]
        left_out.append(name)
        table = render_rows(rows, indent="  ")
    return table, left_out


def runs_record(report: RunsReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    return {"schema": SCHEMA, **plain_values(asdict(report))}


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        run.run_id,
        utc_text(run.started_at).removesuffix(" UTC"),
        duration_text(run.duration_s),
        run.outcome.removeprefix("was ") + (f", marked {run.mark.verdict}" if run.mark else ""),
        step_text(run),
        rate_of(run.throughput.rate) if run.throughput and run.throughput.rate else DASH,
        short(run.release),
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
