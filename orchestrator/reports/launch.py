"""PURE: what a launch did, as facts and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger.cache_use import CacheUse
from orchestrator.ledger.run_environment import RunEnvironment, short_environment
from orchestrator.probes.training import parse_status
from orchestrator.reports.cache import SeededReport, render_seeded
from orchestrator.reports.status import result_lines
from orchestrator.reports.table import short
from orchestrator.reports.training import render_training


@dataclass(frozen=True)
class LaunchReport:
    target: str
    run_id: str
    pid: int
    session: str | None
    release: str
    """Absolute path."""
    resume_from: str | None
    environment: RunEnvironment | None
    """None: it runs in one that orch did not make."""
    notes: tuple[str, ...]
    ended: Mapping[str, Any] | None
    """exit.json, when it has ended already."""
    log_tail: str
    waited: str | None = None
    """The condition that was waited for; None: nobody waited."""
    reached: bool = True
    """False: the run ended well, and before that."""
    status: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    cache: CacheUse | None = None
    """What it made of the compile cache, where its end was waited for."""
    seeded: SeededReport | None = None
    """None: the compile cache was left as it was."""


def render_started(report: LaunchReport) -> str:
    release = short(report.release.rsplit("/", 1)[-1])
    lines = [f"{report.target}: run {report.run_id} started (pid {report.pid}, release {release})"]
    if report.environment:
        lines.append(f"  environment {short_environment(report.environment.id)} ({report.environment.purpose})")
    if report.resume_from:
        lines.append(f"  goes on from {report.resume_from}")
    if report.seeded:
        lines += [f"  {line}" for line in render_seeded(report.seeded, brief=True).splitlines()]
    if report.session:
        lines.append(f"  session {report.session}: orch attach")
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines)


def render_waited(report: LaunchReport) -> str:
    if report.waited == "end":
        lines = [f"{report.target}: run {report.run_id} ended well"]
        lines += [f"  {line}" for line in result_lines(report.result, brief=True)]
        return "\n".join(lines)
    progress = render_progress(report.status or {})
    if report.ended is not None and not report.reached:
        return f"{report.target}: run {report.run_id} ended without an error before it got there (last: {progress})"
    if report.ended is not None and not report.status:
        return f"{report.target}: run {report.run_id} got there and ended well"
    return f"{report.target}: {progress}"


def render_progress(status: Mapping[str, Any]) -> str:
    """status.json in one line."""
    parsed = parse_status(status)
    return render_training(parsed) if parsed else "running"
