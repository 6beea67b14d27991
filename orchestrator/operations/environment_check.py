"""Look at the environment that a command runs in, compare it with its lock or its baseline; record a baseline.

Rule: reads only, but for `record_baseline`. Nothing is repaired: what to do is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import DeadlineError, PreflightError, UsageError
from orchestrator.inventory.model import Payload, Target
from orchestrator.ledger.run_environment import REBUILD, RunEnvironment
from orchestrator.operations.environment import environments_there
from orchestrator.operations.session import agent_session, require_payload, take_lease, who_asks
from orchestrator.probes.environment import (
    EnvironmentFacts,
    Expectation,
    baseline_record,
    expectation_of_baseline,
    expectation_of_lock,
    parse_look,
)
from orchestrator.probes.environment_check import find_wrong
from orchestrator.probes.environment_finding import ERROR, NOTE, EnvironmentFinding
from orchestrator.probes.values import as_mapping, as_str
from orchestrator.reports.environment_check import BaselineReport, CheckReport
from orchestrator.transport.tracing import Trace

HASHING_S = 120.0
MARGIN_S = 60.0
LAUNCH_S = 20.0
SHOWN = 8


@dataclass(frozen=True)
class CheckRequest:
    purpose: str | None = None
    """Of an environment that orch made; None: the one that the command runs in."""
    python: str | None = None
    """An interpreter on the target, in place of the payload's."""
    mode: str = "all"
    """all: every file is hashed; newer: those that were written after they were installed; names: none."""
    deadline_s: float = HASHING_S


@dataclass(frozen=True)
class _Which:
    python: str
    lock: Expectation | None
    """None: orch did not make it; a baseline may say what it was."""


async def check(target: Target, request: CheckRequest, *, trace: Trace | None = None) -> CheckReport:
    """Raises PreflightError (there is none to check), UsageError."""
    async with agent_session(target, trace) as session:
        which = await _which(session, target, request)
        facts = await _look(session, target, which.python, request)
        expected = which.lock or await _baseline(session, target, facts)
    return CheckReport(target.name, facts, expected, find_wrong(facts, expected))


async def look_at_environment(
    session: AgentSession, target: Target, request: CheckRequest
) -> tuple[EnvironmentFinding, ...]:
    """What `check` finds, over a session that is there."""
    which = await _which(session, target, request)
    facts = await _look(session, target, which.python, request)
    return find_wrong(facts, which.lock or await _baseline(session, target, facts))


async def has_torch(session: AgentSession, target: Target, python: str | None) -> bool | None:
    """Whether the environment that a command runs in holds torch, by its files. python: that one, where neither the
    payload nor its environments name one. None: it cannot be told, or there is no environment yet."""
    payload = require_payload(target)
    named = payload.python or payload.environment
    if not named and python is None:
        return None
    request = CheckRequest(python=None if named else python, mode="names", deadline_s=LAUNCH_S)
    try:
        which = await _which(session, target, request)
        return (await _look(session, target, which.python, request)).holds_torch()
    except (AgentOpError, DeadlineError, PreflightError):
        return None


async def record_baseline(target: Target, python: str | None, *, trace: Trace | None = None) -> BaselineReport:
    """Raises PreflightError, BusyError, UsageError (one that orch made has its lock)."""
    async with agent_session(target, trace) as session:
        request = CheckRequest(python=python, mode="newer")
        which = await _which(session, target, request)
        if which.lock is not None:
            raise UsageError(
                f"{target.name}: {which.python} was made by orch: its lock says what it should be",
                way_out="orch env check\norch env baseline --python PATH   for another one",
            )
        facts = await _look(session, target, which.python, request)
        await take_lease(session, target)
        before = (await session.request("env_baseline", base=target.base, prefix=facts.prefix)).header["baseline"]
        record = {**baseline_record(facts), "by": who_asks()}
        kept = await session.request("env_baseline", base=target.base, prefix=facts.prefix, record=record)
    found = tuple(finding for finding in find_wrong(facts, None) if finding.kind != "no_baseline")
    return BaselineReport(target.name, facts.prefix, kept.header["path"], len(facts.used()), before is not None, found)


async def environment_notes(
    session: AgentSession, target: Target, payload: Payload, made: RunEnvironment | None
) -> tuple[str, ...]:
    """What a launch says of the environment that it takes, and what `environment_check: refuse` refuses.

    No file of a package is looked at. payload: with the interpreter that will be used; made: the environment, if orch
    made it. Raises PreflightError."""
    if payload.environment_check == "off" or payload.python is None:
        return ()
    try:
        facts, expected = await _seen_before_launch(session, target, payload.python, made)
    except (AgentOpError, DeadlineError, PreflightError) as error:
        if payload.environment_check == "refuse":
            raise
        # What cannot be looked at keeps nothing from starting.
        return (f"environment: it could not be looked at: {error.what}",)
    found = [finding for finding in find_wrong(facts, expected) if finding.severity != NOTE]
    wrong = [finding for finding in found if finding.severity == ERROR]
    if wrong and payload.environment_check == "refuse":
        more = "" if len(wrong) <= SHOWN else f"\nand {len(wrong) - SHOWN} more: orch env check"
        raise PreflightError(
            f"{target.name}: the environment is not as it should be; nothing was started",
            evidence="\n".join(finding.text for finding in wrong[:SHOWN]) + more,
            way_out="\n".join(
                [*([REBUILD] if made is not None else []),
                 *dict.fromkeys(finding.way_out for finding in wrong[:SHOWN] if finding.way_out),
                 "environment_check: warn   in the payload starts it all the same"]
            ),
        )  # fmt: skip
    told = [f"environment: {finding.text}" for finding in found[:SHOWN]]
    return (*told, *([f"environment: {len(found) - SHOWN} more: orch env check"] if len(found) > SHOWN else []))


async def _seen_before_launch(
    session: AgentSession, target: Target, python: str, made: RunEnvironment | None
) -> tuple[EnvironmentFacts, Expectation | None]:
    facts = await _look(session, target, python, CheckRequest(mode="names", deadline_s=LAUNCH_S))
    if made is None:
        return facts, await _baseline(session, target, facts)
    listed = await environments_there(session, target)
    complete = as_mapping(as_mapping(listed.get("environments")).get(made.id))
    return facts, expectation_of_lock("its lock", complete.get("requirements"))


async def _which(session: AgentSession, target: Target, request: CheckRequest) -> _Which:
    payload = require_payload(target)
    purpose = request.purpose or (payload.environment if request.python is None else None)
    if purpose is not None:
        listed = await environments_there(session, target)
        return _made_by_orch(listed, purpose, target)
    python = request.python or payload.python
    if python is None:
        raise PreflightError(
            f"{target.name}: the inventory names no environment for {payload.name}",
            way_out="write `environments:` or `python:` below the payload\norch env check --python PATH",
        )
    return _Which(python, None)


def _made_by_orch(listed: Mapping[str, Any], purpose: str, target: Target) -> _Which:
    name = as_str(as_mapping(as_mapping(listed.get("current")).get(purpose)).get("id"))
    complete = as_mapping(as_mapping(listed.get("environments")).get(name or ""))
    python = as_str(complete.get("python"))
    if name is None or python is None:
        raise PreflightError(f"{target.name}: there is no environment for {purpose}", way_out="orch env sync")
    return _Which(python, expectation_of_lock(f"its lock ({purpose}, {name[:12]})", complete.get("requirements")))


async def _look(session: AgentSession, target: Target, python: str, request: CheckRequest) -> EnvironmentFacts:
    payload = require_payload(target)
    try:
        answer = await session.request(
            "env_look",
            python=python,
            mode=request.mode,
            variables=dict(payload.variables),
            run_folder=f"{target.base}/releases/current",
            deadline_s=request.deadline_s,
            timeout_s=request.deadline_s + MARGIN_S,
        )
    except AgentOpError as error:
        if error.kind != "missing":
            raise
        raise PreflightError(
            f"{target.name}: {error.what}",
            evidence=error.evidence,
            way_out="see `python:` of the payload in the inventory",
        ) from error
    return parse_look(answer.header)


async def _baseline(session: AgentSession, target: Target, facts: EnvironmentFacts) -> Expectation | None:
    kept = (await session.request("env_baseline", base=target.base, prefix=facts.prefix)).header["baseline"]
    return expectation_of_baseline("the baseline", kept)
