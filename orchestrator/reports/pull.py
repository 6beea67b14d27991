"""PURE: what was fetched, as facts and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.reports.table import bytes_text


@dataclass(frozen=True)
class PullReport:
    target: str
    run_id: str
    folder: str
    files: int
    files_received: int
    bytes_received: int
    live: bool
    result: Mapping[str, Any] | None


def render_pull(report: PullReport) -> str:
    lines = [
        f"{report.target}: run {report.run_id} is in {report.folder} "
        f"({report.files} files; received {report.files_received}, {bytes_text(report.bytes_received)})"
    ]
    if report.live:
        lines.append("  the run is live: this is how far it had got; pull again later")
    return "\n".join(lines)
