"""The runs of a target, from the target; from the index on this machine what it has told already, and what it cannot
tell now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.agent.client import AgentSession
from orchestrator.inventory.model import Target
from orchestrator.ledger.run_query import RunQuery, matching
from orchestrator.ledger.runs import Good, RunSummary, good_runs, last_good, parse_runs, shape_of
from orchestrator.ledger.store import Index, Recalled
from orchestrator.probes.values import as_mapping, as_str
from orchestrator.reports.runs import RunsReport

SHOWN = 20
MAX_RUNS = 500
"""So many, the newest, are listed, and among them the last good one is looked for."""
TAIL_BYTES = 2048
"""Of each log: enough for the last rates that it printed."""


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


def report_of(
    target: Target, query: RunQuery, listing: Listing, *, sync: bool, gone: bool, age_s: float | None, notes: list[str]
) -> RunsReport:
    """age_s: it is from the index, and so old."""
    runs = listing.only_indexed if gone else listing.runs
    found_good = last_good(listing.runs, shape_of(target), least_per_s=least_per_s(target))
    fit = matching(runs, query, least_per_s(target))
    count = SHOWN if query.last is None else query.last
    return RunsReport(
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
        unread=0 if gone else listing.total - len(listing.runs),
        notes=tuple(notes),
    )


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


async def ask_listing(
    session: AgentSession, target: Target, index: Index, recalled: Recalled, *, anew: bool = False
) -> Listing:
    """And keeps in the index what it did not know. anew: ask for every run."""
    reply = await session.request(
        "runs_overview",
        base=target.base,
        last=MAX_RUNS,
        tail_bytes=TAIL_BYTES,
        known={} if anew else recalled.stamps,
        timeout_s=60.0,
    )
    told = [as_mapping(raw) for raw in reply.header["runs"]]
    new = parse_runs({**reply.header, "runs": [raw for raw in told if not raw.get("same")]}, reply.body)
    stamps = {as_str(raw.get("id")): as_str(raw.get("stamp")) for raw in told}
    by_id = {run.run_id: run for run in new}
    runs, rows = [], []
    for raw in told:
        run_id = as_str(raw.get("id")) or ""
        known = recalled.runs[run_id].summary if run_id in recalled.runs else None
        run = by_id.get(run_id)
        if run is not None and run.broken and known is not None and known.ended_at is not None and not known.broken:
            # What was recorded is known here, and there no more: it is not replaced by less.
            run = replace(known, broken=run.broken)
        elif run is not None:
            rows.append((run, stamps.get(run_id)))
        run = run or known
        if run is not None:
            runs.append(run)
    ids = [run.run_id for run in runs]
    total = int(reply.header["total"])
    whole = len(told) >= total
    await asyncio.to_thread(index.keep, place_of(target), float(reply.header["now"]), rows, ids, whole=whole)
    return Listing(tuple(runs), total, len(new), gone_of(recalled, ids, whole=whole))


def gone_of(recalled: Recalled, ids: Sequence[str], *, whole: bool) -> tuple[RunSummary, ...]:
    """Of what the index knows: within the time that the target was asked about, and not there. ids: oldest first;
    whole: of all that there are."""
    there, first = {*ids}, ids[0] if ids and not whole else ""
    return tuple(
        known.summary
        for run_id, known in recalled.runs.items()
        if run_id not in there and (known.gone or run_id >= first)
    )


def from_index(recalled: Recalled) -> Listing:
    there = tuple(known.summary for known in recalled.runs.values() if not known.gone)
    gone = tuple(known.summary for known in recalled.runs.values() if known.gone)
    return Listing(there, len(there), 0, gone)


def place_of(target: Target) -> str:
    """What names its runs among those of all targets: where it is, not how an inventory calls it."""
    host = target.host
    where = f"{host.login}:{host.port or 22}" if host.transport != "local" else "local"
    return f"{where}/{target.kind}:{target.container_id or ''}{target.base}"
