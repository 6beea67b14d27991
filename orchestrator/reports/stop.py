"""PURE: what a stop did, as facts and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.probes.training import how_it_ended, parse_exit
from orchestrator.reports.table import DASH


@dataclass(frozen=True)
class StopReport:
    target: str
    run_id: str | None
    was: str
    """running, ended, none"""
    exit: Mapping[str, Any] | None
    killed_pids: tuple[int, ...]
    newest_checkpoint: str | None


def render_stop(report: StopReport) -> str:
    if report.was == "none":
        return f"{report.target}: nothing is live"
    if report.was == "ended":
        return f"{report.target}: run {report.run_id} had ended already"
    ended = parse_exit(report.exit)
    how = how_it_ended(ended) if ended else "nobody recorded how it ended"
    lines = [f"{report.target}: run {report.run_id} stopped ({how})"]
    if report.killed_pids:
        lines.append(f"  killed: {', '.join(map(str, report.killed_pids))}")
    lines.append(f"  newest complete checkpoint: {report.newest_checkpoint or DASH}")
    return "\n".join(lines)
