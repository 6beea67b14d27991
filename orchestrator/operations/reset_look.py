"""What a reset looks at, before and after: runs' processes, GPU holders, GPU memory, locks. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.inventory.model import Target
from orchestrator.ledger.runspec import cache_folders
from orchestrator.probes.compile_cache import parse_cache_stats
from orchestrator.probes.gpu_processes import (
    APP_FIELDS,
    MEMORY_FIELDS,
    ComputeApp,
    GpuMemory,
    GpuVerdict,
    HostProcess,
    judge_memory,
    parse_apps,
    parse_holders,
    parse_memory,
)
from orchestrator.probes.kill_plan import parse_leftovers, plan_kill
from orchestrator.probes.text import one_line
from orchestrator.reports.reset import Cleared, Recheck, ResetPlan
from orchestrator.reports.table import bytes_text

SMI_DEADLINE_S = 10.0
MEMORY = f"--query-gpu={','.join(MEMORY_FIELDS)}"
APPS = f"--query-compute-apps={','.join(APP_FIELDS)}"
MEMORY_WAIT_S = 15.0
"""The driver may take seconds to give back the memory of a process that is gone."""
POLL_S = 0.25


@dataclass(frozen=True)
class Look:
    leftovers: Mapping[str, Any]
    """The answer of run_leftovers."""
    processes: tuple[HostProcess, ...]
    apps: tuple[ComputeApp, ...] | None
    """None: nobody could say."""
    gpus: tuple[GpuMemory, ...]
    gpu_error: str | None
    """Why the GPUs' memory is not known."""
    no_gpus: bool
    """No nvidia-smi and no device file anywhere."""

    def verdicts(self, container: int | None) -> tuple[GpuVerdict, ...]:
        return judge_memory(self.gpus, self.apps, self.processes, container)


async def look(session: AgentSession, host: AgentSession | None, target: Target, *, with_gpus: bool) -> Look:
    leftovers = (await session.request("run_leftovers", base=target.base)).header
    if not with_gpus:
        return Look(leftovers, (), None, (), None, no_gpus=True)
    # The target's own view says which GPUs are its; only the host is sure to see whose the processes are.
    told, apps_told = await asyncio.gather(_ask(session, MEMORY), _ask(host or session, APPS))
    missing = told["exit_code"] == apps_told["exit_code"] == 127
    if told["exit_code"] != 0 and host is not None and host is not session:
        told = await _ask(host, MEMORY)
    if apps_told["exit_code"] != 0 and host is not None and host is not session:
        apps_told = await _ask(session, APPS)
    apps = parse_apps(apps_told["stdout"]) if apps_told["exit_code"] == 0 else None
    gpus = parse_memory(told["stdout"]) if told["exit_code"] == 0 else ()
    seen: Mapping[str, Any] = {}
    if host is not None:
        seen = (await host.request("gpu_holders", pids=sorted({app.pid for app in apps or ()}))).header
    return Look(
        leftovers=leftovers,
        processes=parse_holders(seen),
        apps=apps,
        gpus=gpus,
        gpu_error=None if gpus else _smi_error(told),
        no_gpus=missing and not seen.get("devices"),
    )


async def _ask(session: AgentSession, query: str) -> dict[str, Any]:
    """nvidia-smi's answer. One that hangs delays nobody but itself."""
    command = {"argv": ["nvidia-smi", query, "--format=csv,noheader,nounits"], "timeout_s": SMI_DEADLINE_S}
    result: dict[str, Any] = (await session.request("run_batch", commands=[command])).header["results"][0]
    return result


def _smi_error(told: Mapping[str, Any]) -> str:
    if told["timed_out"]:
        return f"nvidia-smi did not answer within {SMI_DEADLINE_S:g} s"
    if told["exit_code"] == 127:
        return "nvidia-smi is not installed"
    return one_line(told["stderr"] or told["stdout"] or f"nvidia-smi: exit code {told['exit_code']}")


async def verify(
    session: AgentSession,
    host: AgentSession | None,
    target: Target,
    plan: ResetPlan,
    cleared: Cleared | None,
    *,
    wait_s: float,
) -> tuple[Recheck, ...]:
    """What is true now. Waits for memory that the driver has not given back yet."""
    found = []
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    killing = plan.kill is not None
    while True:
        seen = await look(session, host, target, with_gpus=killing)
        found = [_processes(seen, target), _memory(seen, target)] if killing else []
        if all(finding.ok for finding in found) or loop.time() > until:
            break
        await asyncio.sleep(POLL_S)
    live = seen.leftovers["live"]
    run_id = seen.leftovers.get("live_run") or "unknown"
    found.append(Recheck("live.lock", not live["held"], f"held by run {run_id}" if live["held"] else "free"))
    if cleared is not None:
        found.append(await _cache(session, target, plan))
    found.append(await _lease(session, target))
    return tuple(found)


def _processes(seen: Look, target: Target) -> Recheck:
    left = plan_kill(target.container_id, parse_leftovers(seen.leftovers), seen.processes, seen.apps or ()).killed
    if not left:
        return Recheck("processes", True, "none left on the GPUs, none of a run")
    names = [f"pid {choice.pid} ({choice.reason}, state {choice.state})" for choice in left]
    return Recheck("processes", False, f"{len(left)} left: {', '.join(names[:5])}")


def _memory(seen: Look, target: Target) -> Recheck:
    if seen.no_gpus:
        return Recheck("GPU memory", True, "there is no GPU here")
    if not seen.gpus:
        return Recheck("GPU memory", None, f"not known: {seen.gpu_error}")
    verdicts = seen.verdicts(target.container_id)
    wrong = [verdict for verdict in verdicts if verdict.free is not True]
    if wrong:
        ok = False if any(verdict.free is False for verdict in wrong) else None
        return Recheck("GPU memory", ok, "; ".join(f"GPU {verdict.index}: {verdict.why}" for verdict in wrong))
    shared = [verdict for verdict in verdicts if verdict.why.count("others'")]
    others = "".join(f"; GPU {verdict.index}: {verdict.why}" for verdict in shared)
    return Recheck("GPU memory", True, f"free of this target on {len(verdicts)} GPUs{others}")


async def _cache(session: AgentSession, target: Target, plan: ResetPlan) -> Recheck:
    stats = await session.request("cache_stats", folders=cache_folders(target, target.payload))
    cache = parse_cache_stats(stats.header)
    files = sum(folder.files or 0 for folder in cache.folders) if cache is not None else None
    if files is None or cache is None:
        return Recheck("cache", None, "not known")
    if plan.seed is not None:
        return Recheck("cache", files > 0, f"{bytes_text(cache.bytes)}, {files} files from {plan.seed.name}")
    return Recheck("cache", files == 0, "empty" if files == 0 else f"{files} files are there again")


async def _lease(session: AgentSession, target: Target) -> Recheck:
    try:
        await session.request("lease_assert", base=target.base)
    except AgentOpError as error:
        return Recheck("lease", False, error.what)
    return Recheck("lease", True, "held until now, free once this ends")
