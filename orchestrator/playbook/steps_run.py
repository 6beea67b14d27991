"""Steps about the run of a play: launch it once, expect something of it, wait for it, read what it is worth."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import BusyError, NotAsWantedError, OutcomeUnknownError, RunFailedError, UsageError
from orchestrator.ledger.records import RunRecord
from orchestrator.ledger.runspec import new_run_id
from orchestrator.operations.doctor import doctor
from orchestrator.operations.follow_run import Look, follow_run, look_up_run
from orchestrator.operations.last_good_rate import last_good_rate
from orchestrator.operations.launch import LaunchRequest
from orchestrator.operations.launch import launch as start_run
from orchestrator.operations.launch_wait import raise_if_failed
from orchestrator.operations.warmup import proven_by, require_warm, warm_up
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.durations import parse_duration
from orchestrator.playbook.steps_gate import judged_on
from orchestrator.playbook.steps_look import refuse_findings
from orchestrator.probes.log import last_lines
from orchestrator.probes.rate import TOKENS
from orchestrator.probes.training import RunPhase
from orchestrator.probes.values import as_bool, as_float, as_str
from orchestrator.reports.launch import render_started
from orchestrator.reports.table import rate_text
from orchestrator.reports.warmup import render_warmup
from remote_payload import contract

GOING = (RunPhase.STARTING, RunPhase.RUNNING)

R = TypeVar("R")


async def launch(at: At, options: schema.LaunchOptions) -> Done:
    run_id, found = await _start_once(at, LaunchRequest(settings=options.settings, resume=options.resume), "run_id")
    return Done(found, {"run_id": run_id})


async def warmup(at: At, options: schema.WarmupOptions) -> Done:
    """Raises NotAsWantedError where the run would compile all the same."""
    request = LaunchRequest(settings=options.settings, play=at.play_id)
    known = await proven_by(at.target, request, trace=at.trace)
    if known is not None:
        return Done(f"{at.target.name}: warm: run {known} found everything, and the cache is as it left it")
    report = await warm_up(
        at.target,
        request,
        on_started=lambda started: at.note({"warmup_run_id": started.run_id}),
        on_status=at.on_status,
        trace=at.trace,
    )
    require_warm(report)
    return Done(render_warmup(report))


async def _start_once(at: At, request: LaunchRequest, key: str) -> tuple[str, str]:
    """(run id, what is said of it). The id is noted before the start. Where an earlier try may have started it, it is
    looked up, and started under the same id only if it is not there: the target refuses an id that it has."""
    noted = at.noted.get(key)
    if isinstance(noted, str):
        known = await look_up_run(at.target, noted, trace=at.trace)
        if known is not None and known.run.state.phase is not RunPhase.NOT_STARTED:
            return noted, _adopted(at, known.run)
        if known is not None:
            noted = None  # its folder is there and nothing ever ran in it: the id is used up
    run_id = noted if isinstance(noted, str) else new_run_id(time.time(), secrets.token_hex(2))
    at.note({key: run_id})
    request = replace(request, run_id=run_id, play=at.play_id)
    try:
        return run_id, render_started(await start_run(at.target, request, trace=at.trace))
    except (BusyError, AgentOpError):
        if noted is None:
            raise
        # The first try may have been under way over there still, and come first.
        known = await look_up_run(at.target, run_id, trace=at.trace)
        if known is None or known.run.state.phase is RunPhase.NOT_STARTED:
            raise
        return run_id, _adopted(at, known.run)


def _adopted(at: At, run: RunRecord) -> str:
    return f"{at.target.name}: run {run.run_id} was started before the play was cut off; {_how(run)}"


def _how(run: RunRecord) -> str:
    return "it is " + run.state.phase.value if run.state.phase in GOING else "it has ended since"


async def expect(at: At, options: schema.ExpectOptions) -> Done:
    run_id = _run_of_play(at)
    wanted, why = await _wanted_rate(at, options, run_id)
    if wanted is None:
        done = Done(why, warning=why if options.percent_of_last_good else "")
    else:
        done = await _reaches(at, options, run_id, wanted, why)
    if options.no_finding_above is not None:
        report = await doctor(at.target, run_id, trace=at.trace)
        refuse_findings(report.findings, options.no_finding_above, at.target)
    return done


async def _reaches(at: At, options: schema.ExpectOptions, run_id: str, wanted: float, why: str) -> Done:
    within_s = parse_duration(options.within)

    def decide(look: Look) -> tuple[float | None, int | None] | None:
        _refuse_not_a_number(look)
        rate, step = tokens_per_s(look), look.said.step if look.said else None
        if rate is not None and rate >= wanted:
            return rate, step
        if look.run.state.phase not in GOING:
            _raise_if_failed(look, at)
            raise _too_slow(at, run_id, rate, wanted, why, "when it ended")
        if look.since_s >= within_s:
            raise _too_slow(at, run_id, rate, wanted, why, f"after {options.within}")
        _show(at, look)
        return None

    rate, step = await _followed(at, run_id, decide)
    said = f"{at.target.name}: {rate_text(rate)}, at least {rate_text(wanted)} wanted ({why})"
    return Done(said, {"throughput": rate, "step": step})


async def _wanted_rate(at: At, options: schema.ExpectOptions, run_id: str) -> tuple[float | None, str]:
    """Tokens a second that it must reach, and why. None: there is nothing to compare with."""
    least: list[tuple[float, str]] = []
    if options.tokens_per_s is not None:
        least.append((options.tokens_per_s, "as the playbook says"))
    if options.percent_of_last_good is not None:
        good = await last_good_rate(at.target, before=run_id, trace=at.trace)
        if good is not None:
            text = f"{options.percent_of_last_good:g} % of {rate_text(good.tokens_per_s)} of run {good.run_id}"
            least.append((good.tokens_per_s * options.percent_of_last_good / 100, text))
        else:
            expected = at.target.payload.expected.tokens_per_s_min if at.target.payload else None
            if expected is not None:
                share = options.percent_of_last_good / 100
                least.append((expected * share, "no good run before; of what the inventory expects"))
    if not least and options.percent_of_last_good is None:
        return None, f"{at.target.name}: no rate is expected"
    if not least:
        return None, f"{at.target.name}: no good run before {run_id} has told its rate: nothing to compare with"
    return max(least)


def _too_slow(at: At, run_id: str, rate: float | None, wanted: float, why: str, when: str) -> NotAsWantedError:
    return NotAsWantedError(
        f"run {run_id} on {at.target.name} is too slow: {rate_text(rate)} {when}, {rate_text(wanted)} wanted",
        evidence=why if rate is not None else f"{why}\nit has told no rate at all",
        way_out="orch diff     what differs from the last good run\norch status",
    )


def tokens_per_s(look: Look) -> float | None:
    """None where it is not told, or counts something else."""
    rate = look.said.rate if look.said else None
    return rate.per_s if rate is not None and rate.counted == TOKENS and not rate.per_device else None


async def wait(at: At, options: schema.WaitOptions) -> Done:
    run_id = _run_of_play(at)
    wanted = options.step if options.step is not None else 1 if options.until == "first-step" else None

    def decide(look: Look) -> Look | None:
        _refuse_not_a_number(look)
        step = look.said.step if look.said else None
        if wanted is not None and step is not None and step >= wanted:
            return look
        if look.run.state.phase not in GOING:
            _raise_if_failed(look, at)
            if wanted is not None:
                raise NotAsWantedError(
                    f"run {run_id} on {at.target.name} ended before step {wanted}, without an error",
                    evidence="it told no step" if step is None else f"its last step was {step}",
                    way_out=f"orch runs show {run_id}",
                )
            return look
        _show(at, look)
        return None

    look = await _followed(at, run_id, decide)
    step = look.said.step if look.said else None
    ended = look.run.state.phase not in GOING
    how = "ended well" if ended else f"is at step {step}"
    return Done(f"{at.target.name}: run {run_id} {how}", {"step": step})


async def evaluate(at: At, options: schema.EvaluateOptions) -> Done:
    """Raises NotAsWantedError where there is no result to read."""
    run_id = judged = _run_of_play(at)
    if options.read == "own run":
        request = LaunchRequest(settings=options.settings, resume=options.checkpoint or run_id)
        judged, said = await _start_once(at, request, "evaluation_run_id")
        at.say(said)
    look = await _followed(at, judged, lambda look: _ended_well(look, at))
    result = look.run.result
    if result is None:
        raise NotAsWantedError(
            f"run {judged} on {at.target.name} left no {contract.RESULT}: what it is worth is not known",
            evidence=f"{look.run.folder}/{contract.RESULT} is not there, or cannot be read",
            way_out="docs/payloads.md says what a payload writes there",
        )
    named = as_str(result.get("run_id"))
    if named not in (None, judged):
        raise NotAsWantedError(f"run {judged} on {at.target.name}: its {contract.RESULT} is of another run, {named}")
    tau, lossless = as_float(result.get("acceptance_length")), as_bool(result.get("lossless"))
    if tau is not None and not math.isfinite(tau):
        raise NotAsWantedError(
            f"run {judged} on {at.target.name}: its acceptance length is {tau}, which is not a number"
        )
    checkpoint = _checkpoint(look.run)
    values: dict[str, object] = {"tau": tau, "lossless": lossless, "checkpoint": checkpoint, "evaluated_run": judged}
    values["judged_on"] = judged_on(result)
    identical = {True: "lossless", False: "NOT lossless", None: "lossless or not is not known"}[lossless]
    return Done(f"{at.target.name}: run {judged}: tau {'-' if tau is None else f'{tau:.3f}'}, {identical}", values)


def _checkpoint(run: RunRecord) -> str | None:
    """The newest complete one, as a path on the target."""
    last = run.last_checkpoint
    return f"{run.folder}/{contract.CHECKPOINTS}/{last.name}" if last else None


def _ended_well(look: Look, at: At) -> Look | None:
    _refuse_not_a_number(look)
    if look.run.state.phase in GOING:
        _show(at, look)
        return None
    _raise_if_failed(look, at)
    return look


def _run_of_play(at: At) -> str:
    if at.run_id is None:
        raise UsageError("this play has launched no run", way_out="orch play FILE --from launch")
    return at.run_id


async def _followed(at: At, run_id: str, decide: Callable[[Look], R | None]) -> R:
    return await follow_run(at.target, run_id, decide, timeout_s=None, on_link=at.say, trace=at.trace)


def _show(at: At, look: Look) -> None:
    status, said = look.run.status, look.said
    record: dict[str, object] = {"phase": status.phase if status else look.run.state.phase.value}
    if said is not None:
        record |= {"step": said.step, "total_steps": said.total_steps, "loss": said.loss, "eta_s": said.eta_s}
        record["tokens_per_s"] = tokens_per_s(look)
    at.on_status({name: value for name, value in record.items() if value is not None})


def _refuse_not_a_number(look: Look) -> None:
    """A loss that is no number any more never becomes one again."""
    loss = look.said.loss if look.said else None
    if loss is not None and not math.isfinite(loss):
        step = look.said.step if look.said else None
        raise RunFailedError(
            f"the loss of run {look.run.run_id} is {loss}" + ("" if step is None else f" at step {step}"),
            evidence=last_lines(look.log_tail),
            way_out=f"orch logs {look.run.run_id}\norch diff     what differs from the last good run",
        )


def _raise_if_failed(look: Look, at: At) -> None:
    """Raises RunFailedError with the traceback, OutcomeUnknownError with what is known."""
    run = look.run
    if run.state.phase is RunPhase.ENDED and look.exit is not None:
        raise_if_failed(at.target, run.run_id, look.exit, look.log_tail, stop_asked=run.state.stop_asked)
        return
    raise OutcomeUnknownError(
        f"run {run.run_id} on {at.target.name} is gone: {run.state.phase.value}",
        evidence="\n".join([*run.state.evidence, last_lines(look.log_tail)]),
        way_out=f"orch runs show {run.run_id}",
    )
