"""Everything that tells why a run is slow or dead, over one connection; then the diagnosis. Nothing is changed.

Rule: what cannot be looked at is part of the answer, and keeps nothing else from being looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.diagnosis.case import Case, LinkTrouble, Machine, NotLooked
from orchestrator.diagnosis.comparable import Facts, comparable_facts
from orchestrator.diagnosis.diagnose import Diagnosis, diagnose
from orchestrator.diagnosis.diff import Comparison, compare
from orchestrator.errors import (
    AuthError,
    ContainerError,
    DeadlineError,
    HostKeyError,
    OrchError,
    OutcomeUnknownError,
    PreflightError,
    UnreachableError,
)
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.ledger.runs import RunSummary, choose_run
from orchestrator.ledger.runspec import cache_folders
from orchestrator.ledger.snapshots import Snapshots, parse_snapshots
from orchestrator.operations.beside import compared, good_before, look_at_good, look_at_run
from orchestrator.operations.environment_check import CheckRequest, look_at_environment
from orchestrator.operations.identity import ask_identity
from orchestrator.operations.kernel_log import kernel_text
from orchestrator.operations.ledger import all_runs
from orchestrator.operations.reset_look import look
from orchestrator.operations.run_files import read_json
from orchestrator.operations.session import Sessions, all_sessions, who_asks
from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.container import parse_container
from orchestrator.probes.gpu import QUESTION
from orchestrator.probes.gpu_samples import lasting, memory_swing
from orchestrator.probes.kernel_log import kernel_sentences
from orchestrator.probes.kill_plan import KillPlan, parse_leftovers, plan_kill
from orchestrator.probes.training import RunPhase
from orchestrator.probes.values import as_float, as_int, as_mapping
from orchestrator.reports.doctor import DoctorReport
from orchestrator.reports.status_facts import GpuWord, gpu_answer
from orchestrator.transport.tracing import Trace
from remote_payload import contract

LOG_BYTES = 1024 * 1024
CACHE_S = 5.0
ENVIRONMENT_S = 30.0
"""Files that were written after they were installed are hashed for so long."""
GPU_DEADLINE_S = 10.0
ASK_S = 5.0
GPU_SAMPLES, SAMPLE_PAUSE_S = 6, 0.7
"""Of the GPUs of a run that trains."""
WRITERS = 5
"""Of the newest runs so many are asked what they may have left in the cache."""
PCT = "pct"

Found = TypeVar("Found")


@dataclass
class _Gathering:
    """What was not to be had, and why."""

    missed: list[NotLooked] = field(default_factory=list)

    async def ask(self, what: str, answer: Awaitable[Found]) -> Found | None:
        """None: it could not be looked at. A lost link is raised."""
        try:
            return await answer
        except (AgentOpError, DeadlineError, PreflightError) as error:
            self.missed.append(NotLooked(what, error.what))
            return None


async def doctor(
    target: Target,
    wanted: str | None = None,
    *,
    named: bool = False,
    trace: Trace | None = None,
) -> DoctorReport:
    """wanted: a run's id, its beginning, or `last`; None: the live run, else the newest, and the target as it is now.
    named: commands have to name the target. Raises UsageError when there is no such run; a target that cannot be
    reached is a finding."""
    try:
        async with all_sessions(target, trace) as sessions:
            case = replace(await _look(sessions, target, wanted), named=named)
            diagnosis = diagnose(case)
            await _keep(sessions.target, target, case, diagnosis)
    except (UnreachableError, HostKeyError, AuthError, ContainerError, OutcomeUnknownError) as error:
        case = Case(target=target.name, label=target.label, payload=target.payload, named=named, link=link_of(error))
        diagnosis = diagnose(case)
    return DoctorReport(
        target=target.name,
        label=target.label,
        run_id=case.run.run_id if case.run is not None else None,
        good_id=case.good.run_id if case.good is not None else None,
        good_why=case.good_why,
        diagnosis=diagnosis,
    )


async def _keep(session: AgentSession, target: Target, case: Case, diagnosis: Diagnosis) -> None:
    """With the run's record, for `orch runs`: what is new, and what is found no more. A full disk keeps none."""
    if case.run is None:
        return
    found = [
        {"id": one.id, "severity": one.severity, "title": one.what, "evidence": list(one.evidence)}
        for one in diagnosis.findings
    ]
    with contextlib.suppress(AgentOpError, DeadlineError, OutcomeUnknownError):
        await session.request("keep_findings", base=target.base, run_id=case.run.run_id, who=who_asks(), findings=found)


def link_of(error: OrchError) -> LinkTrouble:
    part = PCT if isinstance(error, ContainerError) else "ssh"
    return LinkTrouble(part, error.what, error.evidence, error.way_out)


@dataclass(frozen=True)
class _Target:
    """The target as it is, whatever runs on it."""

    gpus: GpuWord | None
    memory_swing: float | None
    kernel_log: tuple[str, ...] | None
    cache: CompileCache | None
    snapshots: Snapshots | None
    preflight: Mapping[str, Any]
    processes: KillPlan | None
    identity: Mapping[str, Any] | None
    environment: tuple[Any, ...] | None
    load: tuple[float | None, int | None] = (None, None)


PAST = _Target(None, None, None, None, None, {}, None, None, None)
"""Nothing of the target as it is now tells of a run that is over since."""


async def _look(sessions: Sessions, target: Target, wanted: str | None) -> Case:
    session, gathering = sessions.target, _Gathering()
    runs = await all_runs(session, target)
    run_id = None if wanted is None else choose_run([run.run_id for run in runs], wanted)
    before_s = time.time()
    facts = await session.request(
        "run_facts", base=target.base, run_id=run_id, log_tail_bytes=LOG_BYTES, surroundings=True
    )
    after_s = time.time()
    newest = not runs or run_id is None or run_id == runs[-1].run_id
    now_s = as_float(facts.header.get("now"))
    record = parse_run_record(facts.header)
    trains = record is not None and record.state.phase is RunPhase.RUNNING
    told = await _look_at_target(sessions, target, gathering, GPU_SAMPLES if trains else 1) if newest else PAST
    good = good_before(runs, record, target)
    summary = next((run for run in runs if record is not None and run.run_id == record.run_id), None)
    here, there = None, await look_at_good(session, target, good)
    if record is not None:
        early = await gathering.ask("the begin of the log", _early_failure(session, record, len(facts.body)))
        here = await look_at_run(session, record, facts.body, summary, early)
    comparison, edited = compared(here, there)
    before = here.comparable if here is not None else None
    case = Case(
        target=target.name,
        label=target.label,
        now_s=now_s,
        past=not newest,
        payload=target.payload,
        run=here.facts if here is not None else None,
        good=there.facts if there is not None else None,
        good_why=good.why if good is not None else "",
        comparison=comparison,
        since=_since(before, told.identity),
        edited_at_start=edited,
        variables=(before or {}).get("variables"),
        cache_writers=await _writers(session, target, runs, told) if newest else (),
        container=parse_container(facts.header.get("container")) if newest else None,
        clock_offset_s=offset_s(now_s, before_s, after_s),
        not_looked=tuple(gathering.missed),
    )
    return _with_target(case, told)


def _since(before: Facts | None, identity: Mapping[str, Any] | None) -> Comparison | None:
    """From the run to the target as it is now."""
    if before is None or identity is None:
        return None
    return compare(before, comparable_facts(identity, None), None, None)


def _with_target(case: Case, told: _Target) -> Case:
    disk, gpus = as_mapping(told.preflight.get("disk")), told.gpus
    return replace(
        case,
        cache_now=told.cache,
        snapshots=None if told.snapshots is None else tuple(one.name for one in told.snapshots.kept),
        environment=told.environment,
        gpus=gpus.gpus if gpus is not None else None,
        gpu_error=gpus.error if gpus is not None else None,
        gpu_warnings=gpus.warnings if gpus is not None else (),
        memory_swing_seen=told.memory_swing,
        kernel_log=told.kernel_log,
        processes=told.processes,
        machine=Machine(
            disk_free_bytes=as_int(disk.get("free_bytes")),
            inodes_free=as_int(disk.get("free_inodes")),
            shm_free_bytes=as_int(told.preflight.get("shm_free_bytes")),
            load=told.load[0],
            cpus=told.load[1],
        ),
    )


def offset_s(theirs_s: float | None, before_s: float, after_s: float) -> float | None:
    """0: as far as an answer that takes its time can tell."""
    if theirs_s is None:
        return None
    return min(0.0, theirs_s - before_s) + max(0.0, theirs_s - after_s)


async def _look_at_target(sessions: Sessions, target: Target, gathering: _Gathering, samples: int) -> _Target:
    session, ask = sessions.target, gathering.ask
    payload = target.payload
    preflight = session.request(
        "preflight",
        base=target.base,
        python=payload.python if payload is not None else None,
        tmux_wanted=bool(payload is not None and payload.session),
        nvidia_smi=None,
        paths=[path for path in (payload.data, payload.model) if path] if payload is not None else [],
    )
    answers = asyncio.gather(
        ask("GPUs", _gpus(session, samples)),
        ask("compile cache", session.request("cache_stats", folders=cache_folders(target, payload), max_s=CACHE_S)),
        ask("snapshots of the cache", session.request("list_snapshots", base=target.base)),
        ask("disk and /dev/shm", preflight),
    )
    looks = asyncio.gather(
        ask("load", _load(sessions.host or session)),
        ask("processes", _processes(sessions, target)),
        ask("code, settings and data", ask_identity(session, target, payload, sessions.config))
        if payload is not None
        else _nothing(),
        ask("environment", look_at_environment(session, target, CheckRequest(mode="newer", deadline_s=ENVIRONMENT_S)))
        if payload is not None and (payload.python is not None or payload.environment is not None)
        else _nothing(),
    )
    (words, cache, snapshots, ready), (load, processes, identity, environment) = await asyncio.gather(answers, looks)
    if sessions.host is None:
        gathering.missed.append(NotLooked("processes as the host sees them", sessions.why_no_host))
    word = words[-1] if words else None
    seen = [one.gpus for one in words or () if one.gpus is not None]
    if word is not None and word.gpus is not None:
        word = replace(word, gpus=lasting(seen))
    kernel = await kernel_text(session)
    return _Target(
        gpus=word,
        memory_swing=memory_swing(seen),
        kernel_log=None if kernel is None else kernel_sentences(kernel, (word.gpus or ()) if word is not None else ()),
        cache=parse_cache_stats(cache.header) if cache is not None else None,
        snapshots=parse_snapshots(snapshots.header) if snapshots is not None else None,
        preflight=ready.header if ready is not None else {},
        processes=processes,
        identity=identity,
        environment=environment,
        load=load or (None, None),
    )


async def _gpus(session: AgentSession, samples: int) -> list[GpuWord]:
    """Asked again and again while the rest is looked at: one moment of a training's GPUs tells little."""
    words: list[GpuWord] = []
    for number in range(samples):
        if number:
            await asyncio.sleep(SAMPLE_PAUSE_S)
        asked = await session.request("gpus", smi=list(QUESTION), deadline_s=GPU_DEADLINE_S)
        words.append(gpu_answer(asked.header))
        if words[-1].error is not None:
            break
    return words


async def _load(session: AgentSession) -> tuple[float | None, int | None]:
    """(of the last minute, processors)."""
    argvs = (["cat", "/proc/loadavg"], ["nproc", "--all"])
    commands = [{"argv": argv, "timeout_s": ASK_S} for argv in argvs]
    average, count = (await session.request("run_batch", commands=commands)).header["results"]
    words, cpus = average["stdout"].split(), count["stdout"].strip()
    load = float(words[0]) if words and re.fullmatch(r"[0-9]{1,6}\.[0-9]{1,3}", words[0]) else None
    return load, int(cpus) if re.fullmatch(r"[0-9]{1,5}", cpus) else None


async def _nothing() -> None:
    return None


async def _processes(sessions: Sessions, target: Target) -> KillPlan:
    seen = await look(sessions.target, sessions.host, target, with_gpus=True)
    return plan_kill(target.container_id, parse_leftovers(seen.leftovers), seen.processes, seen.apps or ())


async def _early_failure(session: AgentSession, record: RunRecord, seen_bytes: int) -> str | None:
    """The first failure that the log tells of, where that lies before what was seen of it."""
    if record.log_size_bytes is None or record.log_size_bytes <= seen_bytes:
        return None
    reply = await session.request(
        "find_failure",
        path=f"{record.folder}/{contract.RUN_LOG}",
        before=record.log_size_bytes - seen_bytes,
        which="first",
        timeout_s=60.0,
    )
    return reply.body.decode("utf-8", "surrogateescape") if reply.header.get("offset") is not None else None


async def _writers(
    session: AgentSession, target: Target, runs: Sequence[RunSummary], told: _Target
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The newest runs that may have written what is in the cache, with what they said of torch's settings."""
    oldest_s = told.cache.oldest_at if told.cache is not None else None
    if oldest_s is None:
        return ()
    # What is seeded keeps the times that it had.
    since_s = max(oldest_s, (told.snapshots.seeded_at if told.snapshots is not None else None) or 0.0)
    newest = [run.run_id for run in runs[-WRITERS:] if run.ended_at is None or run.ended_at >= since_s]
    runtimes = await asyncio.gather(
        *(read_json(session, f"{target.base}/runs/{run_id}/{contract.RUNTIME}") for run_id in newest)
    )
    return tuple((run_id, runtime) for run_id, runtime in zip(newest, runtimes, strict=True) if runtime is not None)
