"""Ask the host's kernel log about GPUs, where a status gives a reason to.

Rule: over the connection that is there, and never the cause of a failure: what cannot be read is unknown.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.agent.client import AgentSession
from orchestrator.errors import OrchError
from orchestrator.reports.status import StatusReport

DEADLINE_S = 5.0


def trouble(report: StatusReport) -> tuple[object, ...] | None:
    """What gives a reason to ask; None: nothing does."""
    failed = report.run.run_id if report.run is not None and report.run.failed else None
    if failed is None and not report.gpu_error and not report.gpu_warnings:
        return None
    return failed, report.gpu_error is not None, report.gpu_warnings


async def kernel_text(session: AgentSession) -> str | None:
    """The driver's lines in the kernel log of the session's host; None: not known."""
    if session.on_host is None:
        return None
    from orchestrator.probes.kernel_log import kernel_log_argv  # most statuses find nothing wrong

    try:
        done = await session.on_host().run(kernel_log_argv(), timeout_s=DEADLINE_S)
    except OrchError:
        return None
    return done.stdout.decode("utf-8", "replace") if done.exit_code == 0 else None


def with_kernel_log(report: StatusReport, text: str | None) -> StatusReport:
    if text is None:
        return report
    from orchestrator.probes.kernel_log import kernel_sentences

    return replace(report, gpu_kernel_log=kernel_sentences(text, report.gpus or ()))
