"""Look at one run again and again until something can be said of it; through a link that comes and goes.

Rule: reads only. A lost link is no answer: it is looked again, until the time is over. What a look means is decided by
whoever asks, in a function that does nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import BusyError, DeadlineError, OutcomeUnknownError, UnreachableError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.operations.session import agent_session
from orchestrator.probes.throughput import Throughput, merge, read_tail
from orchestrator.transport.tracing import Trace

TAIL_BYTES = 64 * 1024
LEAST_S, MOST_S = 0.5, 10.0
"""Between two looks: a twentieth of the time that it has been followed, within these."""
LINK_S = 5.0
"""Before a lost link is made anew."""
LINK_LOST = (UnreachableError, OutcomeUnknownError)

R = TypeVar("R")


@dataclass(frozen=True)
class Look:
    run: RunRecord
    said: Throughput | None
    """Step, loss and rate: status.json first, its printed lines otherwise."""
    log_tail: str
    exit: Mapping[str, Any] | None
    """exit.json"""
    since_s: float
    """For how long it has been followed."""


async def look_up_run(target: Target, run_id: str, *, trace: Trace | None = None) -> Look | None:
    """None: there is no such run."""
    async with agent_session(target, trace) as session:
        return await _look(session, target, run_id, 0.0)


async def follow_run(
    target: Target,
    run_id: str,
    decide: Callable[[Look], R | None],
    *,
    timeout_s: float | None,
    on_link: Callable[[str], None] = lambda text: None,
    trace: Trace | None = None,
) -> R:
    """What `decide` says once it says something; whatever it raises ends the following.

    Raises DeadlineError (timeout_s is over), UsageError (there is no such run), and what connecting raises other than a
    lost link: a container that was stopped is an answer."""
    began = time.monotonic()
    lost: Exception | None = None
    while True:
        try:
            async with agent_session(target, trace) as session:
                if lost is not None:
                    on_link(f"{target.name}: the link is back")
                    lost = None
                while True:
                    since_s = time.monotonic() - began
                    look = await _look(session, target, run_id, since_s)
                    if look is None:
                        raise UsageError(f"there is no run {run_id} on {target.name}", way_out="orch runs")
                    found = decide(look)
                    if found is not None:
                        return found
                    if timeout_s is not None and since_s >= timeout_s:
                        raise _over(target, run_id, timeout_s, look)
                    await asyncio.sleep(_pause_s(since_s, timeout_s))
        except (*LINK_LOST, BusyError) as error:
            if timeout_s is not None and time.monotonic() - began >= timeout_s:
                raise
            if lost is None:
                on_link(f"{target.name}: {error.what}; what runs there goes on, it is tried again")
            lost = error
            await asyncio.sleep(LINK_S)


def _pause_s(since_s: float, timeout_s: float | None) -> float:
    pause_s = min(MOST_S, max(LEAST_S, since_s / 20))
    return pause_s if timeout_s is None else max(0.05, min(pause_s, timeout_s - since_s))


def _over(target: Target, run_id: str, timeout_s: float, look: Look) -> DeadlineError:
    step = look.said.step if look.said else None
    return DeadlineError(
        f"run {run_id} on {target.name} did not get there within {timeout_s:g} s",
        evidence="it goes on; " + ("it has told no step yet" if step is None else f"it is at step {step}"),
        way_out="orch status   to look at it\norch stop     to end it",
    )


async def _look(session: AgentSession, target: Target, run_id: str, since_s: float) -> Look | None:
    try:
        reply = await session.request("run_facts", base=target.base, run_id=run_id, log_tail_bytes=TAIL_BYTES)
    except AgentOpError as error:
        if error.kind == "missing":
            return None
        raise
    run = parse_run_record(reply.header)
    if run is None:
        return None
    log = read_tail(reply.body, begins_whole=run.log_size_bytes == len(reply.body))
    exit_record = reply.header["run"].get("exit")
    return Look(run, merge(run.status, log), reply.body.decode("utf-8", "replace"), exit_record, since_s)
