"""A watch over connections that fail in every way, on a clock that costs no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.exchange import Reply
from orchestrator.errors import (
    AuthError,
    ContainerError,
    HostKeyError,
    OrchError,
    OutcomeUnknownError,
    UnreachableError,
)
from orchestrator.operations.watch import LONGEST_PAUSE_S, Watch, pause_s
from orchestrator.reports.status import StatusReport
from orchestrator.transport.protocol import Completed
from tests.unit.facts import TARGET

FACTS: dict[str, Any] = {"now": 5.0, "live": {"held": False}, "run": None}
FRAME = Reply({"all": FACTS, "log": {"at": 0, "anew": True}}, b"", final=False)


class Far:
    """What each connection does in turn: frames and errors; the last one stays silent."""

    label = "ct200"
    lost = "the agent's stream ended"
    on_host = None

    def __init__(self, *connections: list[Reply | OrchError]) -> None:
        self.connections = list(connections)
        self.made = 0
        self.now = 100.0
        self.pauses: list[float] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        self.made += 1
        self.steps: list[Reply | OrchError] = self.connections.pop(0) if self.connections else []
        if self.steps and isinstance(self.steps[0], OrchError):
            raise self.steps[0]
        yield self

    async def stream(self, op: str, **params: Any) -> AsyncIterator[Reply]:
        for step in self.steps:
            if isinstance(step, OrchError):
                raise step
            yield step
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def watch(self) -> Watch:
        return Watch(TARGET, None, self.connect, clock=lambda: self.now, sleep=self.sleep, chance=lambda: 1.0)


async def reports_until(far: Far, wanted: Any) -> list[StatusReport]:
    seen: list[StatusReport] = []
    async with asyncio.timeout(10):
        async for report in far.watch().reports():
            seen.append(report)
            if wanted(report):
                break
    return seen


LOST = OutcomeUnknownError("ct200: the agent's stream ended; what was under way may or may not have been done")


async def test_a_lost_link_keeps_the_facts_and_comes_back() -> None:
    refused = UnreachableError("root@10.1.2.6: the connection was refused")
    stopped = ContainerError("container 200 is stopped")
    far = Far([FRAME, LOST], [refused], [stopped], [FRAME])
    seen = await reports_until(far, lambda report: report.link.connected and far.made == 4)
    assert all(report.now_s == 5.0 for report in seen)
    assert seen[0].link.connected and not seen[-2].link.connected
    assert seen[-2].link.why == "container 200 is stopped"
    assert seen[-2].link.facts_age_s == pytest.approx(sum(far.pauses[:-1]), abs=sum(far.pauses))
    assert far.pauses == [1.0, 2.0, 4.0]


async def test_the_age_moves_while_the_link_is_down() -> None:
    no_route = UnreachableError("no route")
    far = Far([FRAME, LOST], [no_route], [no_route], [no_route])
    ages: list[float] = []

    def old(report: StatusReport) -> bool:
        if far.made == 5:  # the fifth attempt hangs
            far.now += 7.0
            ages.append(report.link.facts_age_s)
        return len(ages) == 3

    await reports_until(far, old)
    assert ages[2] - ages[1] == ages[1] - ages[0] == 7.0


@pytest.mark.parametrize("error", [HostKeyError("changed"), AuthError("refused"), AgentOpError("missing", "no run")])
async def test_what_will_not_pass_ends_the_watch(error: OrchError) -> None:
    with pytest.raises(type(error)):
        await reports_until(Far([FRAME, LOST], [error]), lambda report: False)


@pytest.mark.parametrize("error", [UnreachableError("refused"), ContainerError("stopped"), LOST])
async def test_before_the_first_facts_every_error_is_plain(error: OrchError) -> None:
    far = Far([error])
    with pytest.raises(type(error)):
        await reports_until(far, lambda report: False)
    assert far.made == 1


async def test_an_agent_that_is_told_to_end_is_a_lost_link() -> None:
    far = Far([FRAME, AgentOpError("cancelled", "the request was cancelled")], [FRAME])
    seen = await reports_until(far, lambda report: report.link.connected and far.made == 2)
    assert any("told to end" in (report.link.why or "") for report in seen)


async def test_a_connection_that_held_makes_the_pauses_short_again() -> None:
    far = Far([FRAME, LOST], [UnreachableError("x")], [UnreachableError("x")], [FRAME, FRAME, LOST], [FRAME])

    def wanted(report: StatusReport) -> bool:
        if far.made == 4 and report.link.connected:
            far.now += 60.0  # between its two frames
        return far.made == 5 and report.link.connected

    await reports_until(far, wanted)
    assert far.pauses == [1.0, 2.0, 4.0, 0.5]


def test_pauses_are_bounded_and_spread() -> None:
    assert pause_s(0, 1.0) == 0.5 and pause_s(0, 0.0) == 0.25
    assert pause_s(10**6, 1.0) == LONGEST_PAUSE_S


class Host:
    """Counts how often its kernel log is asked for."""

    def __init__(self, exit_code: int, stdout: bytes) -> None:
        self.asked = 0
        self._answer = exit_code, stdout

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        self.asked += 1
        return Completed(tuple(argv), *self._answer, b"")


def gpu_frame(error: str | None, now: float = 5.0) -> Reply:
    word = {"nodes": {}, "nvml": {"told": {"gpus": [{"index": 0, "bus": "0:61:00.0"}]}, "error": error}, "smi": None}
    return Reply({"changed": {"gpu": word, "now": now}, "log": {"at": 0, "anew": False}}, b"", final=False)


@pytest.mark.parametrize(("exit_code", "told"), [(0, True), (1, False)])
async def test_the_hosts_kernel_is_asked_once_for_each_trouble(exit_code: int, told: bool) -> None:
    host = Host(exit_code, b"[5.0] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n")
    bad, well = gpu_frame("NVML has not answered for 12 s"), gpu_frame(None)
    far = Far([FRAME, well, well, bad, bad, bad, well, well, bad, bad, gpu_frame("it still hangs", 9.0)])
    far.on_host = lambda: host  # type: ignore[attr-defined]
    seen = []
    watch = Watch(TARGET, None, far.connect, clock=lambda: far.now, sleep=far.sleep, chance=lambda: 0.5)
    async with asyncio.timeout(20), aclosing(watch.reports()) as reports:
        async for report in reports:
            seen.append(report)
            if report.now_s == 9.0:
                break
    logs = [report.gpu_kernel_log for report in seen]
    assert host.asked == 2, "not again while the same lasts"
    assert all(log is None for report, log in zip(seen, logs, strict=True) if report.gpu_error is None)
    assert (logs[-1] is not None) is told
    if told:
        assert logs[-1] is not None and "GPU 0 (0000:61:00)" in logs[-1][0] and "fallen off the bus" in logs[-1][0]
