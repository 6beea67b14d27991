"""What runs on a target and how it goes: one agent, one round of questions, nothing changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orchestrator.inventory.model import Target
from orchestrator.ledger.runspec import cache_folders
from orchestrator.operations.session import agent_session
from orchestrator.probes.gpu import QUESTION
from orchestrator.transport.tracing import Trace

if TYPE_CHECKING:
    from orchestrator.reports.status import StatusReport

LOG_TAIL_BYTES = 256 * 1024
CACHE_S = 1.0
"""Counting goes on for so long; a larger cache is said to be at least what was counted."""
GPU_DEADLINE_S = 10.0
"""For NVML, and again for nvidia-smi where that is asked in its place."""


async def status(target: Target, *, trace: Trace | None = None) -> StatusReport:
    """Raises what connecting raises. A GPU that cannot be asked is part of the answer."""
    async with agent_session(target, trace) as session:
        asked, facts, cache, _ = await asyncio.gather(
            session.request("gpus", smi=list(QUESTION), deadline_s=GPU_DEADLINE_S),  # first: it takes longest
            session.request("run_facts", base=target.base, log_tail_bytes=LOG_TAIL_BYTES, surroundings=True),
            session.request(
                "cache_stats", base=target.base, folders=cache_folders(target, target.payload), max_s=CACHE_S
            ),
            asyncio.to_thread(_import_report),
        )
        from orchestrator.operations.kernel_log import kernel_text, trouble, with_kernel_log
        from orchestrator.probes.training import RunPhase
        from orchestrator.reports.status_facts import gpu_answer, status_report

        told = {**facts.header, "cache": cache.header}
        report = status_report(target, told, facts.body, gpu_answer(asked.header))
        if trouble(report) is not None:
            report = with_kernel_log(report, await kernel_text(session))
        if report.run is not None and report.run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
            from orchestrator.operations.rising import judged_once

            report = await judged_once(session, target, report, facts.body)
    return report


def _import_report() -> None:
    """Takes as long as the answers take to come: both at once."""
    import orchestrator.operations.kernel_log
    import orchestrator.reports.status_facts  # noqa: F401
