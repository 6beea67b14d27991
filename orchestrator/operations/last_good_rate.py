"""How fast the last good run of a target was. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.inventory.model import Target
from orchestrator.ledger.runs import last_good, shape_of, tokens_per_s
from orchestrator.operations.ledger import all_runs, least_per_s
from orchestrator.operations.session import agent_session
from orchestrator.transport.tracing import Trace


@dataclass(frozen=True)
class GoodRate:
    run_id: str
    tokens_per_s: float


async def last_good_rate(target: Target, *, before: str, trace: Trace | None = None) -> GoodRate | None:
    """before: a run that is not counted, nor one after it. None: there is no good run, or it told no rate."""
    async with agent_session(target, trace) as session:
        runs = await all_runs(session, target)
    found = last_good(runs, shape_of(target), before=before, least_per_s=least_per_s(target))
    rate = tokens_per_s(found.run) if found else None
    return GoodRate(found.run_id, rate) if found and rate is not None else None
