"""One run's whole record, and what people say of it."""

from __future__ import annotations

import asyncio

from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.fingerprint import parse_fingerprint
from orchestrator.ledger.journal import parse_journal_entry
from orchestrator.ledger.records import parse_run_record
from orchestrator.ledger.remarks import Note, parse_notes
from orchestrator.ledger.runs import Mark, choose_run, parse_mark, parse_runs
from orchestrator.operations.run_files import read_json
from orchestrator.operations.session import agent_session, who_asks
from orchestrator.probes.values import as_mapping
from orchestrator.reports.run_detail import RunDetail
from orchestrator.transport.tracing import Trace
from remote_payload import contract


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


async def note_run(target: Target, wanted: str, text: str, *, trace: Trace | None = None) -> tuple[str, Note]:
    """(run id, the note). wanted: as for show_run. Raises UsageError naming what there is."""
    async with agent_session(target, trace) as session:
        state = (await session.request("run_facts", base=target.base)).header
        run_id = choose_run(state["runs"], wanted)
        try:
            reply = await session.request("note_run", base=target.base, run_id=run_id, text=text, who=who_asks())
        except AgentOpError as error:
            if error.kind != "bad_request":
                raise
            raise UsageError(error.what, way_out="orch runs note last TEXT") from error
    (note,) = parse_notes({"notes": [reply.header]})
    return run_id, note
