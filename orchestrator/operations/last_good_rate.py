"""How fast the last good run of a target was. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.inventory.model import Target
from orchestrator.ledger.runs import last_good, parse_runs, tokens_per_s
from orchestrator.operations.diff import MAX_RUNS, TAIL_BYTES
from orchestrator.operations.session import agent_session
from orchestrator.transport.tracing import Trace


@dataclass(frozen=True)
class GoodRate:
    run_id: str
    tokens_per_s: float


async def last_good_rate(target: Target, *, before: str, trace: Trace | None = None) -> GoodRate | None:
    """before: a run that is not counted, nor one after it. None: there is no good run, or it told no rate."""
    async with agent_session(target, trace) as session:
        reply = await session.request(
            "runs_overview", base=target.base, last=MAX_RUNS, tail_bytes=TAIL_BYTES, timeout_s=60.0
        )
    runs = parse_runs(reply.header, reply.body)
    expected = target.payload.expected if target.payload else None
    found = last_good(runs, before=before, least_per_s=expected.tokens_per_s_min if expected else None)
    if found is None:
        return None
    rate = next((tokens_per_s(run) for run in runs if run.run_id == found[0]), None)
    return None if rate is None else GoodRate(found[0], rate)
