"""Start a run that outlives this connection, and, when asked, wait until it got somewhere.

Rule: "started" is said only once the wrapper holds live.lock and the training was exec'ed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator import __version__
from orchestrator.agent.client import AgentSession
from orchestrator.errors import (
    BusyError,
    OrchError,
    PreflightError,
)
from orchestrator.inventory.model import Payload, Target
from orchestrator.ledger.run_environment import KEY, RunEnvironment
from orchestrator.ledger.runspec import build_run_spec, cache_folders, new_run_id
from orchestrator.operations.checkpoints import Checkpoint, find_checkpoint, kept_settings
from orchestrator.operations.environment_check import environment_notes
from orchestrator.operations.launch_wait import WaitCondition, raise_if_failed, wait_for
from orchestrator.operations.run_environment import environment_for_launch
from orchestrator.operations.seeding import NotEmptyError, make_seed, plan_seed, require_fit
from orchestrator.operations.session import agent_and_config, release_lease, require_payload, take_lease, who_asks
from orchestrator.probes.gpu import QUESTION
from orchestrator.probes.preflight import Preflight, Problem, find_problems, notes, parse_preflight
from orchestrator.reports.cache import SeededReport
from orchestrator.reports.launch import LaunchReport
from orchestrator.transport.tracing import Trace

INSTANT_FAILURE_WATCH_S = 1.0


@dataclass(frozen=True)
class Seeding:
    wanted: str
    """A snapshot's name, its beginning, or last-good."""
    replace: bool = False
    """Keep what is in the cache as a snapshot first."""
    force: bool = False
    """Also where no look-up can hit."""


@dataclass(frozen=True)
class LaunchRequest:
    settings: Mapping[str, object] = field(default_factory=dict)
    wait: WaitCondition | None = None
    timeout_s: float | None = None
    resume: str | None = None
    """None: start afresh; `last`, RUN or RUN:STEP."""
    seed: Seeding | None = None
    """Make the compile cache from a snapshot first."""
    warmup: bool = False
    """The payload's warm-up in place of its command."""
    run_id: str | None = None
    """Chosen before, by whoever must not start it twice: a second start under it is refused. None: a new one."""
    play: str | None = None
    """Id of the play that it is part of, for the record."""


@dataclass(frozen=True)
class _Ready:
    """What the checks before a start found fit for it."""

    payload: Payload
    """With the Python and the command that this run takes."""
    environment: RunEnvironment | None
    facts: Preflight
    observed: Mapping[str, Any]
    """Goes into the fingerprint as it was said."""


async def launch(
    target: Target,
    request: LaunchRequest,
    *,
    on_starting: Callable[[], None] | None = None,
    on_started: Callable[[LaunchReport], None] | None = None,
    on_status: Callable[[Mapping[str, Any]], None] | None = None,
    trace: Trace | None = None,
) -> LaunchReport:
    """Raises PreflightError and BusyError (nothing started), RunFailedError (it ended badly), DeadlineError (it did not
    get there in time, or ended without an error before it could)."""
    payload = require_payload(target)
    if request.warmup:
        payload = replace(payload, command=require_warmup(target, payload))
    async with agent_and_config(target, trace) as (session, config):
        await take_lease(session, target)
        environment, problem = await environment_for_launch(session, target, payload)
        payload = replace(payload, python=environment.python) if environment else payload
        facts, observed = await _preflight(session, target, payload, problem)
        ready = _Ready(payload, environment, facts, {**observed, "container": await config})
        doubts = await environment_notes(session, target, payload, environment)
        seeded = await _seed(session, target, request, config) if request.seed else None
        if on_starting:
            on_starting()
        report = await _start(session, target, ready, request)
        report = replace(report, notes=(*report.notes, *doubts), seeded=seeded)
        # Whoever waits for the end must not keep others from `orch stop`.
        await release_lease(session, target)
        if on_started:
            on_started(report)
        if request.wait is not None:
            report = await wait_for(session, target, report, request.wait, request.timeout_s, on_status)
        elif report.ended is not None:
            raise_if_failed(target, report.run_id, report.ended, report.log_tail)
            report = replace(report, waited="end")
    return report


def require_warmup(target: Target, payload: Payload) -> tuple[str, ...]:
    """Raises PreflightError."""
    if payload.warmup:
        return payload.warmup
    raise PreflightError(
        f"the payload {payload.name} of {target.name} has no warm-up; nothing was started",
        evidence="it has no `warmup:` in the inventory: a command that compiles what a run will ask for, and ends",
        way_out=f"payloads: {payload.name}: warmup: [python, warmup.py]     see docs/payloads.md",
    )


async def _seed(
    session: AgentSession, target: Target, request: LaunchRequest, config: Awaitable[dict[str, str] | None]
) -> SeededReport:
    """A cache that was made from this very snapshot is used as it is, with what was compiled since.

    Raises UsageError, PreflightError, BusyError; then the cache is as it was, and nothing is started."""
    assert request.seed is not None
    plan = await plan_seed(session, target, request.seed.wanted, config, request.settings)
    name = plan.seed.name
    # Typed anew it would be a launch with other settings, or one in place of a warm-up.
    again = "the same command again, with"
    if not request.seed.force:
        require_fit(target, plan, f"{again} --force")
    try:
        return await make_seed(session, target, plan, replace=request.seed.replace, command=again)
    except NotEmptyError:
        if plan.live_from != name:
            raise
    about = "used as it is: the cache was made from it already"
    return SeededReport(target.name, target.label, name, about, None, None, None, plan.fit)


async def _preflight(
    session: AgentSession, target: Target, payload: Payload, problem: Problem | None
) -> tuple[Preflight, dict[str, Any]]:
    """problem: what is known to be wrong already. And what of it belongs into the fingerprint, as it was said.

    Raises BusyError for a live run, PreflightError naming every problem at once."""
    answer, state = await asyncio.gather(
        session.request(
            "preflight",
            base=target.base,
            python=payload.python,
            tmux_wanted=payload.session is not None,
            nvidia_smi=list(QUESTION) if payload.devices else None,
            gpus=payload.devices != 0,
            paths=[path for path in (payload.data, payload.model) if path],
            timeout_s=60.0,
        ),
        session.request("run_facts", base=target.base),
    )
    facts = parse_preflight(answer.header, state.header["release"])
    if facts.live_run is not None:
        raise _busy(target, facts.live_run)
    found = (*([problem] if problem else []), *find_problems(payload, facts))
    if found:
        raise PreflightError(
            f"{target.name} is not ready for {payload.name}; nothing was started",
            evidence="\n".join(problem.text for problem in found),
            way_out="\n".join(dict.fromkeys(problem.way_out for problem in found if problem.way_out)),
        )
    told: dict[str, Any] = {
        name: answer.header[name] for name in ("python", "gpus", "gpus_error") if name in answer.header
    }
    return facts, {"orch_version": __version__, "expected": dict(payload.expected.hashes), **told}


def _busy(target: Target, run_id: str) -> BusyError:
    return BusyError(
        f"a run is live on {target.name}; nothing was started",
        evidence=f"run {run_id} holds {target.base}/live.lock",
        way_out="orch status   to look at it\norch stop     to end it",
    )


async def _start(session: AgentSession, target: Target, ready: _Ready, request: LaunchRequest) -> LaunchReport:
    """Raises BusyError and PreflightError: then it was not started."""
    payload, facts = ready.payload, ready.facts
    now_s = time.time()
    run_id = request.run_id or new_run_id(now_s, secrets.token_hex(2))
    resumed = await find_checkpoint(session, target, request.resume) if request.resume else None
    reply = await session.request(
        "start_run",
        base=target.base,
        run_id=run_id,
        spec=_spec(target, ready, request, resumed, run_id=run_id, now_s=now_s),
        argv=list(payload.command),
        cwd=facts.release,
        release=facts.release,
        environment={**payload.variables, **cache_folders(target, payload)},
        session=payload.session,
        python=payload.python,
        observed=ready.observed,
        watch_s=INSTANT_FAILURE_WATCH_S,
        timeout_s=60.0,
    )
    answer = reply.header
    if not answer["started"]:
        raise _not_started(target, answer)
    environment_note = ready.environment.note() if ready.environment else None
    kept = kept_settings(resumed, payload.settings, request.settings) if resumed else None
    return LaunchReport(
        target=target.name,
        run_id=run_id,
        pid=answer["pid"],
        session=answer.get("session"),
        release=facts.release or "",
        resume_from=resumed.path if resumed else None,
        environment=ready.environment,
        notes=(*notes(payload, facts), *filter(None, [environment_note, kept])),
        ended=answer.get("ended"),
        log_tail=answer.get("log_tail") or "",
    )


def _spec(
    target: Target, ready: _Ready, request: LaunchRequest, resumed: Checkpoint | None, *, run_id: str, now_s: float
) -> dict[str, object]:
    spec = build_run_spec(
        target,
        ready.payload,
        run_id=run_id,
        # A checkpoint goes on as it began: with its run's settings, where nobody says otherwise.
        settings={**(resumed.settings if resumed else {}), **request.settings},
        resume_from=resumed.path if resumed else None,
        who=who_asks(),
        now_s=now_s,
    )
    if request.warmup:
        spec["warmup"] = True
    if ready.environment is not None:
        spec[KEY] = ready.environment.record()
    if request.play is not None:
        spec["play"] = request.play
    return spec


def _not_started(target: Target, answer: Mapping[str, Any]) -> OrchError:
    if answer["reason"] == "busy":
        live = (answer.get("live") or {}).get("content") or {}
        return _busy(target, str(live.get("run_id") or "of another controller"))
    return PreflightError(
        f"the training could not be started on {target.name}",
        evidence=str((answer.get("start_error") or {}).get("message", "")),
        way_out="see `command:` and `python:` of the payload in the inventory",
    )
