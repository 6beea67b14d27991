"""PURE: what a deploy or a rollback did, as facts and as lines."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.reports.table import bytes_text, short


@dataclass(frozen=True)
class DeployReport:
    target: str
    release: str
    """Tree hash."""
    previous: str | None
    """Tree hash that was live before."""
    files: int
    bytes_total: int
    files_sent: int
    """With dry_run: that would be sent."""
    bytes_sent: int
    dry_run: bool
    git_commit: str | None
    git_branch: str | None
    git_dirty_files: int | None
    live_run: str | None
    """A run that is live keeps its own release; None: nothing is live."""
    mended: tuple[str, ...] = ()
    """Files that somebody had edited or removed in place."""
    kept: str | None = None
    """Where the edited release is."""


@dataclass(frozen=True)
class RollbackReport:
    target: str
    release: str
    previous: str | None
    live_run: str | None


def render_deploy(report: DeployReport) -> str:
    sent = f"{report.files_sent} of {report.files} files, {bytes_text(report.bytes_sent)}"
    if report.dry_run:
        lines = [
            f"{report.target}: would send {sent} as release {short(report.release)} (now {short(report.previous)})"
        ]
    elif report.release == report.previous:
        lines = [f"{report.target}: release {short(report.release)} is live already; 0 bytes sent"]
    else:
        lines = [
            f"{report.target}: release {short(report.release)} is live (was {short(report.previous)}); sent {sent}"
        ]
    if report.mended:
        names = ", ".join(report.mended[:5]) + (", ..." if report.mended[5:] else "")
        lines.append(
            f"  edited in place there, and again as deployed: {names}; the edited release is kept in {report.kept}"
        )
    if report.git_commit:
        dirty = report.git_dirty_files
        changed = "unchanged" if dirty == 0 else f"{dirty} changed file{'s' if dirty != 1 else ''}"
        lines.append(f"  git {report.git_commit[:12]} on {report.git_branch or 'no branch'}, {changed}")
    if report.live_run and not report.dry_run:
        lines.append(f"  run {report.live_run} is live and keeps the release it was started from")
    return "\n".join(lines)


def render_rollback(report: RollbackReport) -> str:
    text = f"{report.target}: release {short(report.release)} is live again (was {short(report.previous)})"
    if report.live_run:
        text += f"\n  run {report.live_run} is live and keeps the release it was started from"
    return text
