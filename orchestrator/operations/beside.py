"""A run beside the last good one: both records, what each of them said of its rate, and what differs. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.diagnosis.case import Beside, RunFacts, edited_files
from orchestrator.diagnosis.comparable import Facts, cache_of, comparable_facts
from orchestrator.diagnosis.diff import Comparison, compare
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.ledger.runs import Good, RunSummary, last_good, shape_of
from orchestrator.operations.ledger import all_runs, least_per_s
from orchestrator.operations.run_files import read_json
from orchestrator.probes.pace import Pace, pace_of_log, parse_metrics
from orchestrator.probes.throughput import merge, read_tail
from remote_payload import contract

RATES_BYTES = 64 * 1024
METRICS_BYTES = 256 * 1024


@dataclass(frozen=True)
class RunLooked:
    facts: RunFacts
    fingerprint: Mapping[str, Any] | None

    @property
    def comparable(self) -> Facts | None:
        return comparable_facts(self.fingerprint, self.facts.runtime) if self.fingerprint else None


async def ask_beside(session: AgentSession, target: Target, record: RunRecord) -> Beside:
    """For a status: a second round of questions, and a third one where there is a good run."""
    runs, run = await asyncio.gather(all_runs(session, target), look_at_run(session, record, b"", None))
    good = good_before(runs, record, target)
    looked = await look_at_good(session, target, good)
    comparison, edited = compared(run, looked)
    return Beside(
        run_id=record.run_id,
        cache_before=run.facts.cache_before,
        pace=run.facts.pace,
        good=looked.facts if looked is not None else None,
        good_why=good.why if good is not None else "",
        comparison=comparison,
        edited=edited,
        variables=(run.comparable or {}).get("variables"),
    )


def good_before(runs: Sequence[RunSummary], record: RunRecord | None, target: Target) -> Good | None:
    """The last good run before it, of its shape."""
    of_run = next((run for run in runs if record is not None and run.run_id == record.run_id), None)
    shape = of_run.shape if of_run is not None else shape_of(target)
    before = record.run_id if record is not None else None
    return last_good(runs, shape, before=before, least_per_s=least_per_s(target))


async def look_at_good(session: AgentSession, target: Target, good: Good | None) -> RunLooked | None:
    if good is None:
        return None
    facts = await session.request("run_facts", base=target.base, run_id=good.run_id, log_tail_bytes=RATES_BYTES)
    record = parse_run_record(facts.header)
    return None if record is None else await look_at_run(session, record, facts.body, good.run, whole=False)


async def look_at_run(
    session: AgentSession,
    record: RunRecord,
    tail: bytes,
    summary: RunSummary | None,
    early: str | None = None,
    *,
    whole: bool = True,
) -> RunLooked:
    """tail: the end of its log; early: what was found before that; whole: else the log is read for rates only."""
    fingerprint, metrics = await asyncio.gather(
        read_json(session, f"{record.folder}/{contract.FINGERPRINT}"), _metrics(session, record.folder)
    )
    text = tail.decode("utf-8", "surrogateescape")
    log = None
    if text and (whole or metrics is None):
        from orchestrator.probes.log_reading import read_log  # a status waits for its imports

        log = read_log(f"{early}\n{text}" if early else text)
    end = tail[-RATES_BYTES:]
    facts = RunFacts(
        run_id=record.run_id,
        record=record,
        summary=summary,
        runtime=record.runtime,
        cache_before=cache_of(fingerprint),
        pace=metrics if metrics is not None else pace_of_log(log, record.created_at, record.log_written_at),
        throughput=merge(record.status, read_tail(end, begins_whole=record.log_size_bytes == len(end))),
        log=log,
    )
    return RunLooked(facts, fingerprint)


def compared(run: RunLooked | None, good: RunLooked | None) -> tuple[Comparison | None, tuple[Any, ...]]:
    """(from the good run to the run, files that were edited when the run began)."""
    here = run.comparable if run is not None else None
    there = good.comparable if good is not None else None
    if run is None or here is None:
        return None, ()
    if good is None or there is None:
        return None, edited_files(here)
    return compare(there, here, good.facts.cache_before, run.facts.cache_before), edited_files(here)


async def _metrics(session: AgentSession, folder: str) -> Pace | None:
    try:
        reply = await session.request("read_file", path=f"{folder}/{contract.METRICS}", offset=-METRICS_BYTES)
    except AgentOpError:
        return None  # a training that only prints has none
    return parse_metrics(reply.body.decode("utf-8", "replace"), begins_whole=reply.header["offset"] == 0)
