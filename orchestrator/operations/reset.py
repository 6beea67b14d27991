"""End what holds the GPUs, set the compile cache aside: planned, shown, confirmed, done, and looked at again.

Rule: only what the plan named is ended, each process only if it is still the same; the cache is kept as a snapshot.
Nothing is changed before `confirm` said yes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.errors import BusyError, NotAsWantedError, PreflightError
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import parse_run_record
from orchestrator.ledger.runspec import cache_folders
from orchestrator.ledger.snapshots import parse_snapshots
from orchestrator.operations.cache import folders_of
from orchestrator.operations.reset_look import MEMORY_WAIT_S, Look, look, verify
from orchestrator.operations.seeding import COPY_LIMIT_S, SeedPlan, plan_seed, require_fit
from orchestrator.operations.session import agent_sessions, take_lease, who_asks
from orchestrator.operations.stop import DEFAULT_TIMEOUT_S
from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.kill_plan import KillPlan, parse_leftovers, plan_kill
from orchestrator.reports.reset import Cleared, ResetPlan, ResetReport
from orchestrator.transport.tracing import Trace

STRAY_WAIT_S = 10.0
"""Between TERM and KILL for what no run is responsible for any more."""
KILL_WAIT_S = 10.0

OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class ResetRequest:
    kill_gpus: bool
    clear_cache: bool
    seed: str | None = None
    """A snapshot's name, or last-good; only with clear_cache."""
    force: bool = False
    """Seed also where no look-up can hit."""


async def reset(
    target: Target,
    request: ResetRequest,
    *,
    confirm: Callable[[ResetPlan], Awaitable[bool]],
    on_event: OnEvent = lambda event: None,
    trace: Trace | None = None,
) -> ResetReport:
    """Raises BusyError (a live run and no --kill-gpus; a lease), UsageError and PreflightError for a seed that cannot
    be: nothing was changed then. confirm: shown the plan; False: nothing is changed."""
    async with agent_sessions(target, trace) as (session, host, host_note):
        return await reset_over(session, host, target, request, host_note=host_note, confirm=confirm, on_event=on_event)


async def reset_over(
    session: AgentSession,
    host: AgentSession | None,
    target: Target,
    request: ResetRequest,
    *,
    confirm: Callable[[ResetPlan], Awaitable[bool]],
    host_note: str = "",
    on_event: OnEvent = lambda event: None,
) -> ResetReport:
    """`reset` with agents that are there already, on the target and on its host."""
    seen = await look(session, host, target, with_gpus=request.kill_gpus)
    plan = await _plan(session, target, request, seen, host_note)
    if not await confirm(plan):
        return ResetReport(plan, done=False)
    await take_lease(session, target)
    killed = await _kill(session, host, target, plan, on_event) if plan.kill is not None else ()
    cleared, seeded_files = None, None
    if request.clear_cache:
        cleared = await _clear(session, target)
    if plan.seed is not None:
        seeded = await session.request(
            "cache_seed", base=target.base, name=plan.seed.name, folders=folders_of(target), timeout_s=COPY_LIMIT_S
        )
        seeded_files = int(seeded.header["files"])
    found = await verify(session, host, target, plan, cleared, wait_s=MEMORY_WAIT_S)
    return ResetReport(plan, True, killed, cleared, seeded_files, found)


async def _plan(session: AgentSession, target: Target, request: ResetRequest, seen: Look, host_note: str) -> ResetPlan:
    """Looks only. Raises BusyError, UsageError, PreflightError."""
    live_run = seen.leftovers.get("live_run")
    if seen.leftovers["live"]["held"] and not request.kill_gpus:
        raise BusyError(
            f"a run is live on {target.name} and uses the cache; nothing was changed",
            evidence=f"run {live_run or 'unknown'} holds {target.base}/live.lock",
            way_out="orch stop     to end it\norch reset --kill-gpus --clear-cache     to end it and clear",
        )
    kill = None
    if request.kill_gpus:
        step = await _step(session, target) if live_run else None
        kill = plan_kill(target.container_id, parse_leftovers(seen.leftovers, step), seen.processes, seen.apps or ())
    cache, unfinished, seeding = (
        await _plan_cache(session, target, request) if request.clear_cache else (None, (), None)
    )
    return ResetPlan(
        target=target.name,
        label=target.label,
        kill=kill,
        gpus=seen.verdicts(target.container_id),
        host_note=host_note or None,
        cache=cache,
        cache_unfinished=unfinished,
        snapshots_folder=f"{target.base}/caches/snapshots",
        seed=seeding.seed if seeding else None,
        seed_fit=seeding.fit if seeding else None,
        stop_timeout_s=target.payload.stop_timeout_s if target.payload else DEFAULT_TIMEOUT_S,
    )


async def _step(session: AgentSession, target: Target) -> int | None:
    run = parse_run_record((await session.request("run_facts", base=target.base)).header)
    return run.status.step if run is not None and run.status is not None else None


async def _plan_cache(
    session: AgentSession, target: Target, request: ResetRequest
) -> tuple[CompileCache | None, tuple[str, ...], SeedPlan | None]:
    stats, listed = await asyncio.gather(
        session.request("cache_stats", folders=cache_folders(target, target.payload)),
        session.request("list_snapshots", base=target.base),
    )
    found = parse_snapshots(listed.header)
    seeding = None
    if request.seed is not None:
        seeding = await plan_seed(session, target, request.seed)
        name = seeding.seed.name
        if not request.force:
            require_fit(target, seeding, f"orch reset --clear-cache --seed {name} --force")
        checked = await session.request("snapshot_verify", base=target.base, name=name, timeout_s=COPY_LIMIT_S)
        if checked.header["damaged"]:
            raise PreflightError(
                f"snapshot {name} of {target.name} is damaged; nothing was changed",
                evidence="\n".join(checked.header["damaged"][:20]),
                way_out="orch reset --clear-cache --seed NAME     with another snapshot",
            )
    # Before anything is ended: what cannot be cleared or seeded must not cost a run.
    wanted = seeding.seed.name if seeding is not None else None
    await session.request("cache_check", base=target.base, folders=folders_of(target), seed=wanted)
    return parse_cache_stats(stats.header), found.unfinished, seeding


async def _kill(
    session: AgentSession, host: AgentSession | None, target: Target, plan: ResetPlan, on_event: OnEvent
) -> tuple[str, ...]:
    """What became of each."""
    kill = plan.kill
    assert kill is not None
    if not kill.runs and not kill.host_processes:
        return ()
    detail = {"runs": [run.run_id for run in kill.runs], "pids": [process.pid for process in kill.host_processes]}
    begun = await session.request("journal_begin", base=target.base, operation="kill_gpus", detail=detail)
    phase, told = "failed", []
    try:
        for run in kill.runs:
            told += await _end_run(session, target, run.run_id, plan.stop_timeout_s if run.live else None, on_event)
        if kill.host_processes and host is not None:
            told += await _kill_on_host(session, host, target, kill, on_event)
        phase = "done"
    finally:
        await session.request("journal_end", id=begun.header["id"], phase=phase)
    return tuple(told)


async def _end_run(
    session: AgentSession, target: Target, run_id: str, live_s: float | None, on_event: OnEvent
) -> list[str]:
    """The one way to end a run, as `orch stop` does. live_s: how long a live one may take to save."""
    await session.request("lease_assert", base=target.base)
    wait_s = STRAY_WAIT_S if live_s is None else live_s
    answer: dict[str, Any] = {}
    async for reply in session.stream(
        "stop_run", base=target.base, run_id=run_id, wait_s=wait_s, kill=True, who=who_asks()
    ):
        if not reply.final:
            on_event({"run_id": run_id, **reply.header})
        answer = reply.header
    by_force = [process["pid"] for process in answer["killed"]]
    text = f"run {run_id}: ended" + (f", by force: pid {', '.join(map(str, by_force))}" if by_force else "")
    if not answer["stopped"]:
        text = f"run {run_id}: still lives"
    return [text, *(_cannot(process["pid"], process["state"]) for process in answer.get("still") or [])]


async def _kill_on_host(
    session: AgentSession, host: AgentSession, target: Target, kill: KillPlan, on_event: OnEvent
) -> list[str]:
    await session.request("lease_assert", base=target.base)
    chosen = [
        {"pid": process.pid, "start_ticks": process.start_ticks, "ns_pids": list(process.ns_pids)}
        for process in kill.host_processes
    ]
    answer: dict[str, Any] = {}
    async for reply in host.stream(
        "kill_processes",
        container=target.container_id,
        boot_id=host.hello.boot_id,
        init_start_ticks=host.hello.init_start_ticks,
        processes=chosen,
        wait_s=STRAY_WAIT_S,
        kill_wait_s=KILL_WAIT_S,
    ):
        if not reply.final:
            on_event({"host": True, **reply.header})
        answer = reply.header
    texts = {"ended": "ended", "killed": "killed", "gone": "was gone already; nothing was sent to its number"}
    return [
        _cannot(row["pid"], row["state"])
        if row["outcome"] == "left"
        else f"host pid {row['pid']}: {texts[row['outcome']]}"
        for row in answer["processes"]
    ]


def _cannot(pid: int, state: str | None) -> str:
    if state == "D":
        return (
            f"pid {pid}: cannot be killed: it waits in the kernel (state D), often for a driver or a disk that"
            " does not answer; if that lasts, the host must be restarted"
        )
    return f"pid {pid}: still lives (state {state or '?'})"


async def _clear(session: AgentSession, target: Target) -> Cleared:
    await session.request("lease_assert", base=target.base)
    answer = (
        await session.request(
            "cache_clear",
            base=target.base,
            folders=folders_of(target),
            who=who_asks(),
            why="reset",
            timeout_s=COPY_LIMIT_S,
        )
    ).header
    return Cleared(
        answer["snapshot"],
        answer["bytes"],
        answer["files"],
        tuple(answer["finished"]),
        tuple(answer["odd"]),
        tuple(answer["kept"]),
    )


def require_as_wanted(report: ResetReport) -> None:
    """Raises NotAsWantedError, naming what was looked at again and is not so."""
    if report.as_wanted:
        return
    wrong = [finding for finding in report.found if finding.ok is not True]
    raise NotAsWantedError(
        f"{report.plan.label} is not as wanted after the reset",
        evidence="\n".join(f"{finding.what}: {finding.text}" for finding in wrong),
        way_out="orch status     then orch reset again; what cannot be killed is to be looked at on the host",
    )
