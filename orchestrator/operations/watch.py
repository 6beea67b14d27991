"""A target's status again and again over one connection, which may be lost and come back.

Rule: what was told is shown with its age until something newer is. A host key that changed and a login that is
refused end the watch; whatever may pass is tried again, after pauses that grow to LONGEST_PAUSE_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import ContainerError, DeadlineError, OrchError, OutcomeUnknownError, UnreachableError
from orchestrator.inventory.model import Target
from orchestrator.ledger.runspec import cache_folders
from orchestrator.operations.kernel_log import kernel_text, trouble, with_kernel_log
from orchestrator.operations.rising import Judge
from orchestrator.operations.session import agent_session
from orchestrator.probes.gpu import FIELDS, QUESTION
from orchestrator.reports.status import LinkFact, StatusReport
from orchestrator.reports.told import KEPT_LOG_BYTES, Told
from orchestrator.transport.tracing import Trace

INTERVAL_S = 1.0
GPU_INTERVAL_S = 1.0
SMI_INTERVAL_S = 2
AGEING_S = 1.0
"""At least so often there is a report, so that the age moves."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
CONNECTING_AT_ONCE = 8
"""To one address: sshd refuses some of those that come while ten have not logged in yet."""
KERNEL_LOG_S = 60.0
HASTE_S = 0.5
"""Nothing is under way that is worth a wait: an agent that does not end within this time, as over a dead link, ends by
itself when it hears no more of us."""
STEADY_S = 10.0
"""A connection that held for so long was a good one: the pauses begin anew."""
GPU_QUESTION = {
    "interval_s": GPU_INTERVAL_S,
    "smi": {"argv": list(QUESTION), "columns": len(FIELDS), "interval_s": SMI_INTERVAL_S},
}
PASSING = (UnreachableError, ContainerError, OutcomeUnknownError, DeadlineError)

Connect = Callable[[], AbstractAsyncContextManager[AgentSession]]


async def watch(
    target: Target, run_id: str | None = None, *, trace: Trace | None = None
) -> AsyncGenerator[StatusReport]:
    """One report a frame, and at least one in AGEING_S; never ends by itself. run_id None: the live or newest run,
    also one that is started later. Until the first report it raises what connecting raises."""
    async with aclosing(Watch(target, run_id, lambda: agent_session(target, trace)).reports()) as reports:
        async for report in reports:
            yield report


async def watch_all(
    targets: Sequence[Target], *, trace: Trace | None = None
) -> AsyncGenerator[tuple[Target, StatusReport | OrchError]]:
    """The reports of them all, as they come; what may pass is told and tried again. Ends only when every target has
    failed for good (a host key that changed, a login that is refused)."""
    told: asyncio.Queue[tuple[Target, StatusReport | OrchError] | None] = asyncio.Queue(2 * len(targets))
    connecting = {target.host.address: asyncio.Semaphore(CONNECTING_AT_ONCE) for target in targets}
    left = len(targets)

    async def follow(target: Target) -> None:
        failures = 0
        while True:
            try:
                async with aclosing(watch(target, trace=trace)) as reports:
                    async with connecting[target.host.address]:
                        await told.put((target, await anext(reports)))
                    failures = 0
                    async for report in reports:
                        await told.put((target, report))
            except PASSING as error:
                await told.put((target, error))
                failures += 1
                await asyncio.sleep(pause_s(failures, random.random()))
            except OrchError as error:
                await told.put((target, error))
                await told.put(None)
                return

    following = [asyncio.create_task(follow(target)) for target in targets]
    try:
        while left:
            item = await told.get()
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


class Watch:
    """Use `reports`. Clock (monotonic, seconds), sleep and chance (0 to 1) are given for tests."""

    def __init__(
        self,
        target: Target,
        run_id: str | None,
        connect: Connect,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._question: dict[str, Any] = {
            "base": target.base,
            "run_id": run_id,
            "interval_s": INTERVAL_S,
            "gpu": GPU_QUESTION,
            "cache_folders": cache_folders(target, target.payload),
        }
        self._connect = connect
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._told = Told(target, clock)
        self._report: StatusReport | None = None
        self._told_s = 0.0
        self._why: str | None = None
        """None: connected."""
        self._since_s = clock()
        self._changed = asyncio.Event()
        self._session: AgentSession | None = None
        self._trouble: tuple[object, ...] | None = None
        """About which the host's kernel log was asked last, at `_asked_s`."""
        self._asked_s = float("-inf")
        self._kernel_text: str | None = None
        self._asking: asyncio.Task[None] | None = None
        self._judge = Judge(target, clock)

    async def reports(self) -> AsyncGenerator[StatusReport]:
        following = asyncio.create_task(self._follow())
        following.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGEING_S):
                        await self._changed.wait()
                self._changed.clear()
                if following.done():
                    following.result()
                if self._report is not None:
                    yield replace(self._report, link=self._link())
        finally:
            tasks = [task for task in (following, self._asking, self._judge.asking) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _link(self) -> LinkFact:
        now = self._clock()
        return LinkFact(self._why is None, now - self._since_s, self._why, now - self._told_s)

    async def _follow(self) -> None:
        failures = 0
        while True:
            began = self._clock()
            try:
                await self._one_connection()
            except PASSING as error:
                if self._report is None:
                    raise
                self._lost(error.what)
            failures = 0 if self._told_s - began > STEADY_S else failures + 1
            await self._sleep(pause_s(failures, self._chance()))

    async def _one_connection(self) -> None:
        """Returns when what was a good connection is lost. Raises what connecting raises, and AgentOpError."""
        async with self._connect() as session:
            self._session = session
            session.close_limit_s = HASTE_S
            try:
                async with aclosing(session.stream("watch", log_tail_bytes=KEPT_LOG_BYTES, **self._question)) as frames:
                    async for frame in frames:
                        self._take(self._told.take(frame.header, frame.body))
            except (OutcomeUnknownError, UnreachableError):
                if self._report is None:
                    raise
                self._lost(f"{session.label}: {session.lost}")  # nothing was under way: we only look
            except AgentOpError as error:
                if error.kind != "cancelled" or self._report is None:
                    raise
                self._lost(f"{session.label}: the agent was told to end")

    def _take(self, report: StatusReport) -> None:
        self._told_s = self._clock()
        self._report = self._judge.judged(self._with_kernel_log(report), self._told.log, self._session)
        if self._why is not None:
            self._why, self._since_s = None, self._told_s
        self._changed.set()

    def _with_kernel_log(self, report: StatusReport) -> StatusReport:
        """Asked beside the frames, once for each trouble and now and then while it lasts."""
        seen = trouble(report)
        if seen is None:
            self._trouble = self._kernel_text = None
            return report
        due = seen != self._trouble or self._told_s - self._asked_s > KERNEL_LOG_S
        if due and (self._asking is None or self._asking.done()) and self._session is not None:
            self._trouble, self._asked_s = seen, self._told_s
            self._asking = asyncio.create_task(self._ask_kernel(self._session))
        return with_kernel_log(report, self._kernel_text)

    async def _ask_kernel(self, session: AgentSession) -> None:
        self._kernel_text = await kernel_text(session)

    def _lost(self, why: str) -> None:
        if self._why is None:
            self._since_s = self._clock()
        self._why = why
        self._changed.set()


def pause_s(failures: int, chance: float) -> float:
    """Doubles with each failure, and is spread, so that many watchers do not come back at once."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10))
    return longest * (0.5 + 0.5 * chance)
