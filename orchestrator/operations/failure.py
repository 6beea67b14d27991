"""Why a run failed, from all of its log: its last traceback, and the first where that was another one."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.inventory.model import Target
from orchestrator.operations.session import agent_session
from orchestrator.operations.which_run import facts_of_run
from orchestrator.probes.log import Traceback, find_first_traceback, find_traceback
from orchestrator.transport.tracing import Trace
from remote_payload import contract

SEARCH_S = 300.0
"""A log of many gigabytes on a slow disk."""


@dataclass(frozen=True)
class RunFailure:
    run_id: str
    last: Traceback | None
    """None: its log holds no traceback that mattered."""
    first: Traceback | None
    """Where another came first, most often in another thread or rank: that one; else None."""


async def run_failure(target: Target, run_id: str | None, *, trace: Trace | None = None) -> RunFailure:
    """Raises UsageError when there is no such run, and what connecting raises."""
    async with agent_session(target, trace) as session:
        run = (await facts_of_run(session, target, run_id))["run"]
        path = f"{run['folder']}/{contract.RUN_LOG}"
        last = await last_traceback(session, path)
        first = None if last is None else await _first_traceback(session, path)
    return RunFailure(run["id"], last, first if last and first and first.text not in last.text else None)


async def last_traceback(session: AgentSession, path: str) -> Traceback | None:
    """Whole, however much was written behind it. None when there is none, or no log."""
    before: int | None = None
    while True:
        try:
            reply = await session.request("find_failure", path=path, before=before, which="last", timeout_s=SEARCH_S)
        except AgentOpError as error:
            if error.kind == "missing":
                return None
            raise
        found = find_traceback(reply.body.decode("utf-8", "replace"))
        if found is not None or not reply.header["earlier"]:
            return found
        before = reply.header["begin"]  # only what Python ignored, so far


async def _first_traceback(session: AgentSession, path: str) -> Traceback | None:
    reply = await session.request("find_failure", path=path, which="first", timeout_s=SEARCH_S)
    return find_first_traceback(reply.body.decode("utf-8", "replace"))
