"""Findings of a run that goes on, for a status: asked for beside its facts, and never the cause of a failure.

Rule: what the last good run was, and what each line said of the rate, is asked again now and then; the signatures judge
of it every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import DeadlineError, OutcomeUnknownError, UnreachableError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord
from orchestrator.probes.training import RunPhase
from orchestrator.reports.status import BesideGood, StatusReport

if TYPE_CHECKING:  # a status of no run imports none of it
    from orchestrator.diagnosis.case import Beside
    from orchestrator.diagnosis.finding import Finding
    from orchestrator.diagnosis.rising import Rising
    from orchestrator.probes.gpu import GpuFact

ASKED_EVERY_S = 30.0
JUDGED_EVERY_S = 5.0
GPU_SAMPLES = 60
"""Frames of a watch: a minute of them."""
ONCE_S = 5.0
"""A status waits so long for it."""
GOES_ON = (RunPhase.RUNNING, RunPhase.STARTING)
Ask = Callable[[AgentSession, Target, RunRecord], Awaitable["Beside | None"]]
NOT_TO_BE_HAD = (AgentOpError, DeadlineError, UsageError, OutcomeUnknownError, UnreachableError, TimeoutError)


async def judged_once(session: AgentSession, target: Target, report: StatusReport, log_tail: bytes) -> StatusReport:
    """For one status. What only one look shows is left out: nobody looks again."""
    assert report.run is not None
    beside = await _ask(session, target, report.run)
    if beside is None:
        return report
    from orchestrator.diagnosis.rising import MOMENTARY
    from orchestrator.reports.findings import beside_good, findings_of

    found = findings_of(report, target, beside, log_tail)
    return replace(
        report,
        findings=tuple(one for one in found if one.id not in MOMENTARY),
        beside_good=beside_good(report, target, beside, log_tail),
    )


async def _ask(session: AgentSession, target: Target, run: RunRecord) -> Beside | None:
    """None: it was not to be had."""
    from orchestrator.operations.beside import ask_beside

    try:
        async with asyncio.timeout(ONCE_S):
            return await ask_beside(session, target, run)
    except NOT_TO_BE_HAD:
        return None


class Judge:
    """For a watch. clock: monotonic, seconds; ask: given for tests."""

    def __init__(self, target: Target, clock: Callable[[], float], ask: Ask | None = None) -> None:
        self._target = target
        self._asks = ask or _ask
        self._clock = clock
        self._beside: Beside | None = None
        self._asked_s = self._judged_s = float("-inf")
        self._run_id: str | None = None
        self._found: tuple[Finding, ...] | None = None
        self._band: BesideGood | None = None
        self._rising: Rising | None = None
        self._gpus: deque[tuple[GpuFact, ...]] = deque(maxlen=GPU_SAMPLES)
        self.asking: asyncio.Task[None] | None = None

    def judged(self, report: StatusReport, log: bytes, session: AgentSession | None) -> StatusReport:
        run = report.run
        if run is None or run.state.phase not in GOES_ON:
            self._run_id, self._found, self._beside, self._band = None, None, None, None
            return report
        if run.run_id != self._run_id:
            self._run_id, self._found, self._beside, self._rising, self._band = run.run_id, None, None, None, None
            self._asked_s = self._judged_s = float("-inf")
            self._gpus.clear()
        now_s = self._clock()
        if run.status is not None and run.status.phase not in (None, "training"):
            self._gpus.clear()  # what comes and goes at a start or in an evaluation is as it should be
        elif report.gpus is not None:
            self._gpus.append(report.gpus)
        free = self.asking is None or self.asking.done()
        if session is not None and free and now_s - self._asked_s >= ASKED_EVERY_S:
            self._asked_s = now_s
            self.asking = asyncio.create_task(self._ask(session, run))
        if self._beside is not None and now_s - self._judged_s >= JUDGED_EVERY_S:
            self._judged_s = now_s
            self._found = self._shown(report, log, now_s)
        return replace(report, findings=self._found, beside_good=self._band)

    def _shown(self, report: StatusReport, log: bytes, now_s: float) -> tuple[Finding, ...]:
        from orchestrator.diagnosis.rising import Rising
        from orchestrator.probes.gpu_samples import memory_swing
        from orchestrator.reports.findings import beside_good, findings_of

        self._band = beside_good(report, self._target, self._beside, log)
        if self._rising is None:
            self._rising = Rising()
        found = findings_of(report, self._target, self._beside, log, memory_swing(tuple(self._gpus)))
        return self._rising.take(found, now_s)

    async def _ask(self, session: AgentSession, run: RunRecord) -> None:
        beside = await self._asks(session, self._target, run)
        if beside is not None and run.run_id == self._run_id:
            self._beside = beside
