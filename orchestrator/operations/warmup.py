"""Compile what a run will ask for, as a run of its own, and prove it: a fresh process then finds all of it.

Rule: a pass that adds nothing to the cache and misses nothing is the proof; one that compiled is none of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import NotAsWantedError
from orchestrator.inventory.model import Target
from orchestrator.ledger.cache_fit import judge, parse_maker
from orchestrator.ledger.cache_use import hits_of, misses_of
from orchestrator.ledger.runspec import cache_folders
from orchestrator.operations.cache import COUNT_LIMIT_S, plan_key, show_cache
from orchestrator.operations.identity import ask_identity
from orchestrator.operations.launch import LaunchRequest, launch
from orchestrator.operations.launch_wait import WaitCondition
from orchestrator.operations.session import agent_session, require_payload
from orchestrator.probes.training import parse_status
from orchestrator.reports.launch import LaunchReport
from orchestrator.reports.warmup import WarmupPass, WarmupReport, why_not
from orchestrator.transport.tracing import Trace

MOST_PASSES = 2


async def warm_up(
    target: Target,
    request: LaunchRequest,
    *,
    on_started: Callable[[LaunchReport], None] | None = None,
    on_status: Callable[[Mapping[str, Any]], None] | None = None,
    on_pass: Callable[[WarmupPass], None] | None = None,
    trace: Trace | None = None,
) -> WarmupReport:
    """request: settings, timeout_s (of each pass) and seed count. Raises what a launch raises; a report that is not
    `done` is no error here."""
    asked = replace(request, warmup=True, wait=WaitCondition("end"), resume=None)
    passes: list[WarmupPass] = []
    while len(passes) < MOST_PASSES and not (passes and passes[-1].found_all):
        report = await launch(target, asked, on_started=on_started, on_status=on_status, trace=trace)
        passes.append(_pass(report))
        if on_pass:
            on_pass(passes[-1])
        asked = replace(asked, seed=None, run_id=None)
    shown = await show_cache(target, trace=trace)
    return WarmupReport(target.name, target.label, tuple(passes), shown.enough, shown.census.entries)


def require_warm(report: WarmupReport) -> None:
    """Raises NotAsWantedError."""
    if report.done:
        return
    way_out = "orch cache show     what is in it, by device"
    if not report.proven:
        way_out += f"\norch logs {report.passes[-1].run_id}"
    raise NotAsWantedError(
        f"{report.target} is not warm enough: a run would compile, or is not sure to find all it asks for",
        evidence="\n".join(why_not(report)),
        way_out=way_out,
    )


async def proven_by(target: Target, request: LaunchRequest, *, trace: Trace | None = None) -> str | None:
    """The run that makes a warm-up needless: of the same code, settings, devices, torch and GPUs, it found everything,
    and the cache is as it left it. None: there is none."""
    payload = require_payload(target)
    async with agent_session(target, trace) as session:
        answer = await session.request(
            "cache_proof",
            base=target.base,
            folders=cache_folders(target, payload),
            like=plan_key(target, request.settings),
            timeout_s=COUNT_LIMIT_S,
        )
        proof = answer.header["proof"]
        if proof is None:
            return None
        then = await session.request("cache_maker", base=target.base, identity=proof["identity"])
        identity = (await ask_identity(session, target, payload, None, settings=request.settings)).get("identity")
        now = await session.request("cache_maker", base=target.base, identity=identity)
    made = parse_maker(then.header["maker"])
    fit = judge([made] if made else [], None, parse_maker(now.header["maker"]), None)
    unlike = fit.hard or "torch" in fit.unknown
    return None if unlike else str(proof["run_id"])


def _pass(report: LaunchReport) -> WarmupPass:
    status = parse_status(report.status)
    compiled = status.compiled if status is not None else None
    after = report.cache.after if report.cache is not None else None
    ended = report.ended or {}
    began, end = ended.get("started_at"), ended.get("ended_at")
    return WarmupPass(
        run_id=report.run_id,
        took_s=end - began if isinstance(began, float) and isinstance(end, float) else None,
        misses=misses_of(compiled),
        new_files=after.new_files if after is not None else None,
        new_graphs=after.new_graphs if after is not None else None,
        complete=after is not None and after.complete,
        hits=hits_of(compiled),
    )
