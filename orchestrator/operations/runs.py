"""The runs of a target, and one run's whole record. Nothing is changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.fingerprint import parse_fingerprint
from orchestrator.ledger.journal import parse_journal_entry
from orchestrator.ledger.records import parse_run_record
from orchestrator.ledger.runs import Good, Mark, RunSummary, choose_run, good_runs, parse_mark, parse_runs, shape_of
from orchestrator.operations.session import agent_session, who_asks
from orchestrator.probes.values import as_mapping
from orchestrator.reports.run_detail import RunDetail
from orchestrator.reports.runs import RunsReport
from orchestrator.transport.tracing import Trace
from remote_payload import contract

SHOWN = 20
MAX_RUNS = 500
"""Among so many, the newest, the last good one is looked for."""
TAIL_BYTES = 1024
"""Of each log then: enough for the last rates that it printed."""


async def list_runs(target: Target, *, last: int | None = None, trace: Trace | None = None) -> RunsReport:
    """last: how many, the newest. Raises what connecting raises."""
    async with agent_session(target, trace) as session:
        count = SHOWN if last is None else last
        reply = await session.request("runs_overview", base=target.base, last=count, timeout_s=60.0)
    runs = parse_runs(reply.header, reply.body)
    return RunsReport(target.name, target.label, reply.header["total"], tuple(reversed(runs)))


async def all_runs(session: AgentSession, target: Target) -> tuple[RunSummary, ...]:
    """Oldest first."""
    reply = await session.request(
        "runs_overview", base=target.base, last=MAX_RUNS, tail_bytes=TAIL_BYTES, timeout_s=60.0
    )
    return parse_runs(reply.header, reply.body)


async def ask_good_runs(session: AgentSession, target: Target) -> tuple[Good, ...]:
    """Of what is launched there now; the first is the last good one."""
    return good_runs(await all_runs(session, target), shape_of(target), least_per_s=least_per_s(target))


def least_per_s(target: Target) -> float | None:
    """What the inventory expects at least, in tokens."""
    return target.payload.expected.tokens_per_s_min if target.payload else None


async def show_run(target: Target, wanted: str, *, trace: Trace | None = None) -> RunDetail:
    """wanted: an id, its unique beginning, or `last`. Raises UsageError naming what there is."""
    async with agent_session(target, trace) as session:
        state = (await session.request("run_facts", base=target.base)).header
        newest = as_mapping(state["run"]).get("id")
        run_id = str(newest) if wanted == "last" and newest else choose_run(state["runs"], wanted)
        facts, overview, entries, fingerprint = await asyncio.gather(
            session.request("run_facts", base=target.base, run_id=run_id),
            session.request("runs_overview", base=target.base, only=run_id),
            session.request("journal_entries", base=target.base, run_id=run_id),
            read_json(session, f"{target.base}/runs/{run_id}/{contract.FINGERPRINT}"),
        )
    run = parse_run_record(facts.header)
    summaries = parse_runs(overview.header, overview.body)
    if run is None or not summaries:
        raise UsageError(f"run {run_id} is no longer there", way_out="orch runs")
    lines = [parse_journal_entry(line) for line in entries.header["entries"]]
    return RunDetail(
        target=target.name,
        label=target.label,
        run=run,
        summary=summaries[0],
        fingerprint=parse_fingerprint(fingerprint),
        fingerprint_record=fingerprint,
        journal=tuple(line for line in lines if line is not None),
    )


async def mark_run(
    target: Target, wanted: str, verdict: str, note: str | None, *, trace: Trace | None = None
) -> tuple[str, Mark]:
    """(run id, its mark). wanted: as for show_run. Raises UsageError naming what there is."""
    async with agent_session(target, trace) as session:
        state = (await session.request("run_facts", base=target.base)).header
        run_id = choose_run(state["runs"], wanted)
        reply = await session.request(
            "mark_run", base=target.base, run_id=run_id, verdict=verdict, note=note, who=who_asks()
        )
    mark = parse_mark(reply.header)
    assert mark is not None
    return run_id, mark


async def read_json(session: AgentSession, path: str) -> Mapping[str, Any] | None:
    """None: not there, or not to be read."""
    try:
        reply = await session.request("read_file", path=path)
        value = json.loads(reply.body)
    except (AgentOpError, ValueError):
        return None
    return value if isinstance(value, dict) else None
