"""PURE: what became of a training that orch did not start."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.journal import utc_text
from orchestrator.probes.text import one_line

SCHEMA = "orch.adopt/1"


@dataclass(frozen=True)
class AdoptReport:
    target: str
    label: str
    session: str
    run_id: str
    pid: int
    command: tuple[str, ...]
    folder: str
    """The training's working folder."""
    started_at: float
    log: str
    """Where its log is from: `pane`, or the file that it writes."""
    notes: tuple[str, ...]


def render_adopted(report: AdoptReport) -> str:
    log = "the pane's history, then all that it shows" if report.log == "pane" else report.log
    lines = [
        f"{report.label}: session {report.session} is run {report.run_id}",
        f"  pid {report.pid} since {utc_text(report.started_at)}: {one_line(' '.join(report.command), 300)}",
        f"  in {one_line(report.folder, 300)}; its log: {one_line(log, 300)}",
        "  how it ends will not be known: only who starts a process sees its exit code",
    ]
    return "\n".join([*lines, *(f"  note: {one_line(note, 300)}" for note in report.notes)])


def adopted_record(report: AdoptReport) -> dict[str, Any]:
    """For --json."""
    return {"schema": SCHEMA, **asdict(report)}
