"""The runs of a target, from the target; from the index on this machine what it has told already, and what it cannot
tell now."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.errors import (
    AuthError,
    ContainerError,
    HostKeyError,
    OrchError,
    OutcomeUnknownError,
    UnreachableError,
)
from orchestrator.inventory.model import Target
from orchestrator.ledger.run_query import RunQuery, matching
from orchestrator.ledger.runs import Good, RunSummary, good_runs, last_good, parse_runs, shape_of
from orchestrator.ledger.store import Index, Recalled
from orchestrator.operations.session import agent_session
from orchestrator.probes.values import as_mapping, as_str
from orchestrator.reports.runs import RunsReport
from orchestrator.transport.tracing import Trace

SHOWN = 20
MAX_RUNS = 500
"""So many, the newest, are listed, and among them the last good one is looked for."""
TAIL_BYTES = 2048
"""Of each log: enough for the last rates that it printed."""
CANNOT_TELL = (UnreachableError, HostKeyError, AuthError, ContainerError, OutcomeUnknownError)


@dataclass(frozen=True)
class Listing:
    runs: tuple[RunSummary, ...]
    """Oldest first."""
    total: int
    """That there are on the target."""
    asked: int
    """Of them those that the index did not know as they are."""
    only_indexed: tuple[RunSummary, ...]
    """No longer on the target."""


async def list_runs(
    target: Target, query: RunQuery, *, sync: bool = False, gone: bool = False, trace: Trace | None = None
) -> tuple[RunsReport, OrchError | None]:
    """sync: ask for every run, whatever the index knows; gone: those that are only in the index. The error: why the
    target could not be asked, where the index answers for it. Raises what connecting raises where it cannot."""
    index = Index(heal=True)
    if sync:
        await asyncio.to_thread(index.check)
    recalled = await asyncio.to_thread(index.recall, place_of(target))
    error, age_s = None, None
    try:
        async with agent_session(target, trace) as session:
            listing = await ask_listing(session, target, index, Recalled({}, None) if sync else recalled)
    except CANNOT_TELL as found:
        if recalled.seen_at is None:
            raise
        error, age_s = found, max(0.0, time.time() - recalled.seen_at)
        listing = _from_index(recalled)
    else:
        if sync:
            listing = Listing(listing.runs, listing.total, listing.asked, _gone(recalled, listing.runs))
    runs = listing.only_indexed if gone else listing.runs
    found_good = last_good(listing.runs, shape_of(target), least_per_s=least_per_s(target))
    fit = matching(runs, query, least_per_s(target))
    count = SHOWN if query.last is None else query.last
    report = RunsReport(
        target=target.name,
        label=target.label,
        total=len(runs) if gone else listing.total,
        runs=fit[:count],
        fitting=len(fit),
        last_good=found_good.run_id if found_good else None,
        only_indexed=len(listing.only_indexed),
        gone=gone,
        synced=listing.asked if sync else None,
        index_age_s=age_s,
        notes=tuple(index.notes),
    )
    return report, error


async def all_runs(session: AgentSession, target: Target) -> tuple[RunSummary, ...]:
    """Oldest first."""
    index = Index()
    recalled = await asyncio.to_thread(index.recall, place_of(target))
    return (await ask_listing(session, target, index, recalled)).runs


async def ask_good_runs(session: AgentSession, target: Target) -> tuple[Good, ...]:
    """Of what is launched there now; the first is the last good one."""
    return good_runs(await all_runs(session, target), shape_of(target), least_per_s=least_per_s(target))


def least_per_s(target: Target) -> float | None:
    """What the inventory expects at least, in tokens."""
    return target.payload.expected.tokens_per_s_min if target.payload else None


async def ask_listing(session: AgentSession, target: Target, index: Index, recalled: Recalled) -> Listing:
    """And keeps in the index what it did not know."""
    reply = await session.request(
        "runs_overview",
        base=target.base,
        last=MAX_RUNS,
        tail_bytes=TAIL_BYTES,
        known=recalled.stamps,
        timeout_s=60.0,
    )
    told = [as_mapping(raw) for raw in reply.header["runs"]]
    new = parse_runs({**reply.header, "runs": [raw for raw in told if not raw.get("same")]}, reply.body)
    stamps = {as_str(raw.get("id")): as_str(raw.get("stamp")) for raw in told}
    by_id = {run.run_id: run for run in new}
    runs = []
    for raw in told:
        run_id = as_str(raw.get("id")) or ""
        run = by_id.get(run_id) or (recalled.runs[run_id].summary if run_id in recalled.runs else None)
        if run is not None:
            runs.append(run)
    rows = [(run, stamps.get(run.run_id)) for run in new]
    ids = [run.run_id for run in runs]
    await asyncio.to_thread(index.keep, place_of(target), float(reply.header["now"]), rows, ids)
    return Listing(tuple(runs), int(reply.header["total"]), len(new), _gone(recalled, runs))


def _gone(recalled: Recalled, runs: tuple[RunSummary, ...] | list[RunSummary]) -> tuple[RunSummary, ...]:
    """Of what the index knows: within the time that the target was asked about, and not there."""
    there, first = {run.run_id for run in runs}, runs[0].run_id if runs else ""
    return tuple(
        known.summary
        for run_id, known in recalled.runs.items()
        if run_id not in there and (known.gone or run_id >= first)
    )


def _from_index(recalled: Recalled) -> Listing:
    there = tuple(known.summary for known in recalled.runs.values() if not known.gone)
    gone = tuple(known.summary for known in recalled.runs.values() if known.gone)
    return Listing(there, len(there), 0, gone)


def place_of(target: Target) -> str:
    """What names its runs among those of all targets: where it is, not how an inventory calls it."""
    host = target.host
    where = f"{host.login}:{host.port or 22}" if host.transport != "local" else "local"
    return f"{where}/{target.kind}:{target.container_id or ''}{target.base}"
