"""PURE: what was fetched, as facts and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.probes.text import one_line
from orchestrator.reports.table import bytes_text


@dataclass(frozen=True)
class PullReport:
    target: str
    run_id: str
    folder: str
    files: int
    files_received: int
    bytes_received: int
    left_out: tuple[str, ...]
    """Names of what cannot be moved: FIFOs, sockets, links that lead out."""
    live: bool
    result: Mapping[str, Any] | None


def render_pull(report: PullReport) -> str:
    lines = [
        f"{report.target}: run {report.run_id} is in {report.folder} "
        f"({report.files} files; received {report.files_received}, {bytes_text(report.bytes_received)})"
    ]
    if report.left_out:
        names = ", ".join(one_line(name, 60) for name in report.left_out[:10])
        lines.append(f"  left out, since they cannot be moved: {names}{', ...' if len(report.left_out) > 10 else ''}")
    if report.live:
        lines.append("  the run is live: this is how far it had got; pull again later")
    return "\n".join(lines)
