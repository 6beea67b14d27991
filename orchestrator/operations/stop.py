"""Ask a run for a checkpoint and end it; by force only when told so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.errors import DeadlineError
from orchestrator.inventory.model import Target
from orchestrator.operations.session import agent_session, who_asks
from orchestrator.reports.stop import StopReport
from orchestrator.transport.tracing import Trace

DEFAULT_TIMEOUT_S = 120.0


async def stop(
    target: Target,
    *,
    timeout_s: float | None = None,
    kill: bool = False,
    run_id: str | None = None,
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    trace: Trace | None = None,
) -> StopReport:
    """run_id: only this one; None: whichever is live. Raises DeadlineError when it still lives after the time, naming
    its processes."""
    if timeout_s is None:
        timeout_s = target.payload.stop_timeout_s if target.payload else DEFAULT_TIMEOUT_S
    # No lease: a stop must get through while somebody else's deploy or launch is under way; live.lock decides.
    async with agent_session(target, trace) as session:
        answer: dict[str, Any] = {}
        async for reply in session.stream(
            "stop_run", base=target.base, run_id=run_id, wait_s=timeout_s, kill=kill, who=who_asks()
        ):
            if not reply.final and on_event:
                on_event(reply.header)
            answer = reply.header
        checkpoint = None
        if answer["stopped"] and answer["was"] == "running":
            facts = await session.request("run_facts", base=target.base, run_id=answer["run_id"])
            complete = [entry["name"] for entry in facts.header["run"]["checkpoints"] if entry["complete"]]
            checkpoint = complete[-1] if complete else None
    if not answer["stopped"]:
        still = "\n".join(f"pid {process['pid']}: {' '.join(process['argv'])}" for process in answer["still"])
        raise DeadlineError(
            f"run {answer['run_id']} on {target.name} still lives after {timeout_s:g} s",
            evidence=still,
            way_out="it cannot be killed: look at it on the host (in state D it waits for a device or a disk)"
            if kill
            else "orch stop --kill",
        )
    return StopReport(
        target=target.name,
        run_id=answer["run_id"],
        was=answer["was"],
        exit=answer["exit"],
        killed_pids=tuple(process["pid"] for process in answer["killed"]),
        newest_checkpoint=checkpoint,
    )
