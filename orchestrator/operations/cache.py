"""The compile cache of a target: what is in it, what is kept of it. Looks only."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.agent.client import AgentSession
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.cache_enough import judge_enough, parse_plan
from orchestrator.ledger.fingerprint import parse_fingerprint
from orchestrator.ledger.runs import shape_of
from orchestrator.ledger.runspec import CACHE_VARIABLES, build_run_spec, cache_folders
from orchestrator.ledger.snapshots import LAST_GOOD, Snapshots, choose_seed, parse_snapshots
from orchestrator.operations.ledger import ask_good_runs
from orchestrator.operations.run_files import read_json
from orchestrator.operations.session import agent_session
from orchestrator.probes.cache_census import parse_census
from orchestrator.reports.cache import CacheReport, LastGood, SnapshotsReport
from orchestrator.transport.tracing import Trace
from remote_payload import contract

COUNT_LIMIT_S = 120.0
COUNT_S = 20.0
"""Beyond this the counting stops and says "at least"."""


async def show_cache(target: Target, *, trace: Trace | None = None) -> CacheReport:
    """Raises what connecting raises."""
    async with agent_session(target, trace) as session:
        listed = await session.request("list_snapshots", base=target.base)
        found = parse_snapshots(listed.header)
        good = await _last_good(session, target, found)
        wanted = [name for name in (found.seeded_from, good.snapshot) if name]
        answer = await session.request(
            "cache_show",
            base=target.base,
            folders=folders_of(target),
            against=list(dict.fromkeys(wanted)),
            like=plan_key(target, {}),
            max_s=COUNT_S,
            timeout_s=COUNT_LIMIT_S,
        )
    census, plan = parse_census(answer.header), parse_plan(answer.header.get("plan"))
    of_good = {snapshot.name: snapshot.devices for snapshot in found.kept}.get(good.snapshot or "")
    enough = judge_enough(census, plan, good.run_id, of_good, good.graphs)
    return CacheReport(target.name, target.label, census, good, enough)


def plan_key(target: Target, settings: Mapping[str, object]) -> dict[str, object]:
    """Of run.json of a launch with these settings: what decides the shapes and the devices."""
    if target.payload is None:
        return {}
    spec = build_run_spec(target, target.payload, run_id="", settings=settings, resume_from=None, who="", now_s=0.0)
    return {name: spec[name] for name in ("payload", "settings", "targets", "drafters", "model")}


async def list_kept(target: Target, *, trace: Trace | None = None) -> SnapshotsReport:
    """Raises what connecting raises."""
    async with agent_session(target, trace) as session:
        listed = await session.request("list_snapshots", base=target.base)
    return SnapshotsReport(target.name, target.label, parse_snapshots(listed.header))


def folders_of(target: Target) -> dict[str, str]:
    """Cache -> folder, under the names that a snapshot keeps them by."""
    folders = cache_folders(target, target.payload)
    return {kind: folders[variable] for kind, variable in CACHE_VARIABLES.items()}


async def _last_good(session: AgentSession, target: Target, found: Snapshots) -> LastGood:
    """The snapshot that goes with it; without one, what it found at its launch."""
    runs = await ask_good_runs(session, target)
    if not runs:
        return LastGood(None, f"no run of {shape_of(target).text} was good yet", None, None)
    try:
        seed = choose_seed(LAST_GOOD, found, runs)
    except UsageError:
        told = await read_json(session, f"{target.base}/runs/{runs[0].run_id}/{contract.FINGERPRINT}")
        fingerprint = parse_fingerprint(told)
        cache = fingerprint.cache if fingerprint is not None else None
        size = cache.bytes if cache is not None else None
        after = runs[0].run.cache_after
        return LastGood(
            runs[0].run_id, "when it was launched", size, None, after.entries if after is not None else None
        )
    kept = {snapshot.name: snapshot for snapshot in found.kept}[seed.name]
    newer = "" if seed.run_id == runs[0].run_id else f"; the last good one is {runs[0].run_id}, which has no snapshot"
    return LastGood(seed.run_id, "in the cache that goes with it" + newer, kept.bytes, seed.name)
