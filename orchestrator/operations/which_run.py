"""Which run a person means: an id, the beginning of one, the last."""

from __future__ import annotations

from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.runs import choose_run

LAST = ("last", "latest")


async def facts_of_run(session: AgentSession, target: Target, wanted: str | None) -> dict[str, Any]:
    """The header of run_facts, its `run` not None. wanted: an id, its unique beginning, or `last`; None: the live or
    newest run. Raises UsageError naming what there is."""
    asked = None if wanted in LAST else wanted
    try:
        state = (await session.request("run_facts", base=target.base, run_id=asked)).header
    except AgentOpError as error:
        if asked is None or error.kind not in ("missing", "bad_request"):
            raise
        there = (await session.request("run_facts", base=target.base)).header["runs"]
        run_id = choose_run(there, asked)
        state = (await session.request("run_facts", base=target.base, run_id=run_id)).header
    if state["run"] is None:
        raise UsageError(f"{target.name} has no runs yet", way_out="orch launch")
    return state
