"""Environments on a target: build what the locks say, choose which one a purpose uses, remove what nobody uses.

Rule: an environment is never changed. Another lock makes another one beside it, and until that one is whole the one
before stays current; a live run keeps the one it was started in whatever happens here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.tree import OnProgress, push_tree
from orchestrator.agent.tree_plan import plan_push
from orchestrator.agent.tree_push import transfer_error
from orchestrator.agent.wheels import read_lock_text
from orchestrator.errors import BusyError, InventoryError, OrchError, PreflightError, TransferError, UsageError
from orchestrator.inventory.model import Environment, Payload, Target
from orchestrator.ledger.lock import Lock, installed, parse_lock
from orchestrator.ledger.run_environment import builds_of, choose_by_prefix, next_build, short_environment
from orchestrator.operations.session import agent_session, require_payload, take_lease, who_asks
from orchestrator.operations.wheels import Wheels, find_wheels, uv_lock
from orchestrator.probes.interpreter import Interpreter, parse_interpreter
from orchestrator.reports.environment import (
    EnvironmentsReport,
    RemovedReport,
    Synced,
    SyncReport,
    UsedReport,
    parse_environments,
)
from orchestrator.transport.tracing import Trace

INSTALL_LIMIT_S = 3600.0
BUILD_LIMIT_S = INSTALL_LIMIT_S + 600.0
MAX_LEFT_ALONE = 10


@dataclass(frozen=True)
class SyncRequest:
    purposes: tuple[str, ...] = ()
    """Empty: all of the payload's."""
    wheels: Path | None = None
    """A folder that holds every wheel; None: they are fetched."""
    indexes: tuple[str, ...] = ()
    """In place of the inventory's."""
    rebuild: bool = False
    """Although it is there: somebody changed it."""
    switch: bool = True
    dry_run: bool = False


@dataclass(frozen=True)
class _Wanted:
    """One environment of the inventory, its lock read."""

    environment: Environment
    lock: Lock

    @property
    def name(self) -> str:
        return self.lock.environment(self.environment.python)


async def sync(
    target: Target,
    request: SyncRequest,
    *,
    on_progress: OnProgress | None = None,
    on_phase: Callable[[str], None] = lambda text: None,
    trace: Trace | None = None,
) -> SyncReport:
    """Raises InventoryError (a lock), TransferError, PreflightError, BusyError; nothing that was current is touched."""
    wanted = _wanted(target, request.purposes)
    async with agent_session(target, trace) as session:
        listed = await environments_there(session, target)
        work = _Sync(session, target, request, listed, on_progress, on_phase)
        return SyncReport(target.name, tuple([await work.one(each) for each in wanted]))


class _Sync:
    def __init__(
        self,
        session: AgentSession,
        target: Target,
        request: SyncRequest,
        listed: Mapping[str, Any],
        on_progress: OnProgress | None,
        on_phase: Callable[[str], None],
    ) -> None:
        self._session = session
        self._target = target
        self._request = request
        self._listed = listed
        self._on_progress = on_progress
        self._say = on_phase

    async def one(self, wanted: _Wanted) -> Synced:
        purpose = wanted.environment.purpose
        before = (self._listed["current"].get(purpose) or {}).get("id")
        name, complete = self._build_of(wanted, before)
        files_sent = bytes_sent = wheel_bytes = 0
        there = complete is not None
        took_s = None
        if complete is None:
            interpreter = await self._interpreter(wanted.environment)
            wheels = await self._wheels(wanted, interpreter)
            wheel_bytes = wheels.size_bytes
            packages = len(wheels.requirements)
            if self._request.dry_run:
                plan = await plan_push(self._session, wheels.tree, f"{self._target.base}/wheels")
                files_sent, bytes_sent = plan.files_missing, plan.bytes_missing
            else:
                files_sent, bytes_sent = await self._push(purpose, wheels)
                name, complete = await self._build_beside(wanted, name, interpreter, wheels)
                took_s = complete["took_s"]
        else:
            packages = len(complete["requirements"])
        switch = self._request.switch and not self._request.dry_run
        if switch and before != name:
            await take_lease(self._session, self._target)
            await self._session.request("env_use", base=self._target.base, purpose=purpose, id=name, wanted=wanted.name)
        return Synced(
            purpose=purpose,
            environment=name,
            already_there=there,
            packages=packages,
            wheel_bytes=wheel_bytes,
            files_sent=files_sent,
            bytes_sent=bytes_sent,
            took_s=took_s,
            before=before,
            switched=switch,
            dry_run=self._request.dry_run,
        )

    def _build_of(self, wanted: _Wanted, before: str | None) -> tuple[str, Mapping[str, Any] | None]:
        """Which build of the lock it is about, and its complete.json if it is there."""
        there = {name: record for name, record in self._listed["environments"].items() if record is not None}
        builds = builds_of(there, wanted.name)
        if self._request.rebuild or not builds:
            return next_build(there, wanted.name), None
        name = before if before in builds else builds[-1]
        return name, there[name]

    async def _interpreter(self, environment: Environment) -> Interpreter:
        reply = await self._session.request("env_facts", pythons=[environment.python], timeout_s=60.0)
        found = parse_interpreter(reply.header["pythons"][environment.python])
        if isinstance(found, str):
            raise PreflightError(
                f"{self._target.name} has no interpreter to make the environment for {environment.purpose} with",
                evidence=f"{environment.python}: {found}",
                way_out=f"install it over there, or name another in `python:` of environment `{environment.purpose}`",
            )
        return found

    async def _wheels(self, wanted: _Wanted, interpreter: Interpreter) -> Wheels:
        self._say(f"{wanted.environment.purpose}: finding the wheels for Python {interpreter.version}")
        indexes = self._request.indexes or wanted.environment.indexes
        return await find_wheels(wanted.lock, interpreter, uv_lock(), self._request.wheels, indexes, self._say)

    async def _push(self, purpose: str, wheels: Wheels) -> tuple[int, int]:
        await take_lease(self._session, self._target)
        self._say(f"{purpose}: sending the wheels that are missing there")
        pushed = await push_tree(
            self._session,
            wheels.tree,
            f"{self._target.base}/wheels",
            provenance={"purpose": purpose, "pushed_by": who_asks()},
            share=True,
            on_progress=self._on_progress,
        )
        return pushed.files_sent, pushed.bytes_sent

    async def _build_beside(
        self, wanted: _Wanted, name: str, interpreter: Interpreter, wheels: Wheels
    ) -> tuple[str, Mapping[str, Any]]:
        """A folder of that name whose complete.json cannot be read is left alone, for a run may be using it: the next
        name is taken."""
        for _ in range(MAX_LEFT_ALONE):
            try:
                return name, await self._build(wanted, name, interpreter, wheels)
            except AgentOpError as error:
                conflict = error
                name = next_build([name], wanted.name)
        raise transfer_error(self._target.name, conflict) from conflict

    async def _build(self, wanted: _Wanted, name: str, interpreter: Interpreter, wheels: Wheels) -> Mapping[str, Any]:
        purpose = wanted.environment.purpose
        about = {
            "purpose": purpose,
            "lock_sha256": wanted.lock.sha256,
            "python_version": interpreter.version,
            "uv": wheels.uv_version,
            "built_by": who_asks(),
        }
        answer: Mapping[str, Any] = {}
        try:
            async for reply in self._session.stream(
                "env_build",
                base=self._target.base,
                id=name,
                tree=wheels.tree.tree_hash,
                python=interpreter.executable,
                requirements=installed(wheels.requirements),
                about=about,
                limit_s=INSTALL_LIMIT_S,
                timeout_s=BUILD_LIMIT_S,
            ):
                answer = reply.header
                if not reply.final:
                    self._say(f"{purpose}: {_PHASES.get(answer['phase'], answer['phase'])}")
        except AgentOpError as error:
            if error.kind == "conflict":
                raise
            raise _not_built(self._target, purpose, error) from error
        complete: Mapping[str, Any] = answer["complete"]
        return complete


_PHASES = {
    "unpack": "unpacking uv over there",
    "make": "making the environment",
    "install": "installing and compiling",
    "sync": "waiting until all of it is on disk",
}


def _not_built(target: Target, purpose: str, error: AgentOpError) -> OrchError:
    if error.kind == "spoiled":
        return TransferError(
            f"{target.name}: {error.what}", evidence=error.evidence, way_out="orch env sync   sends them again"
        )
    if error.kind != "build_failed":
        return transfer_error(target.name, error)
    return PreflightError(
        f"{target.name}: the environment for {purpose} could not be built: {error.what}",
        evidence=error.evidence,
        way_out="what was current stays current; correct the lock and repeat `orch env sync`",
    )


def _wanted(target: Target, purposes: tuple[str, ...]) -> list[_Wanted]:
    """Raises InventoryError, PreflightError, UsageError."""
    known = _environments(require_payload(target), target)
    for purpose in purposes:
        if purpose not in known:
            raise UsageError(
                f"the payload of {target.name} has no environment `{purpose}`",
                evidence="there are: " + ", ".join(known),
                way_out="orch env list",
            )
    return [_read(known[purpose]) for purpose in purposes or known]


def _environments(payload: Payload, target: Target) -> Mapping[str, Environment]:
    if payload.environments:
        return payload.environments
    raise PreflightError(
        f"{target.name}: the inventory names no environment for {payload.name}",
        evidence=f"its command runs in {payload.python}, which orch did not make" if payload.python else "",
        way_out="write `environments:` below the payload, see docs/environments.md",
    )


def _read(environment: Environment) -> _Wanted:
    return _Wanted(environment, parse_lock(read_lock_text(environment.lock), str(environment.lock)))


def environment_name(environment: Environment) -> str:
    """What its lock asks for now. Raises InventoryError."""
    return _read(environment).name


async def list_environments(target: Target, *, trace: Trace | None = None) -> EnvironmentsReport:
    """What is there is told also when a lock cannot be read. Raises what connecting raises."""
    payload = target.payload
    wanted = {}
    for environment in (payload.environments if payload else {}).values():
        with suppress(InventoryError):
            wanted[environment.purpose] = environment_name(environment)
    async with agent_session(target, trace) as session:
        listed = await environments_there(session, target)
    return parse_environments(target.name, listed, wanted)


async def use(
    target: Target, wanted: str | None, *, purpose: str | None = None, trace: Trace | None = None
) -> UsedReport:
    """wanted: a name or its beginning; None: the one before. Raises UsageError, BusyError."""
    payload = require_payload(target)
    async with agent_session(target, trace) as session:
        await take_lease(session, target)
        listed = await environments_there(session, target)
        name = None if wanted is None else _choose(listed, wanted, target)
        chosen = purpose or _purpose_of(listed, name, payload, target)
        asked = payload.environments.get(chosen)
        try:
            answer = await session.request(
                "env_use",
                base=target.base,
                purpose=chosen,
                id=name,
                wanted=await asyncio.to_thread(lambda: _read(asked).name) if asked else None,
            )
        except AgentOpError as error:
            if error.kind != "missing":
                raise
            raise UsageError(f"{target.name}: {error.what}", way_out="orch env list") from error
    used = answer.header
    return UsedReport(
        target.name, chosen, used["id"], used["before"], used["instead_of"], live_run=listed["live"] is not None
    )


async def remove(
    target: Target, wanted: tuple[str, ...], *, unused: bool = False, trace: Trace | None = None
) -> RemovedReport:
    """wanted: names or their beginnings; with unused: all that nobody uses. Raises UsageError, BusyError."""
    async with agent_session(target, trace) as session:
        await take_lease(session, target)
        listed = await environments_there(session, target)
        names = None if unused else [_choose(listed, each, target) for each in wanted]
        try:
            answer = await session.request("env_remove", base=target.base, ids=names, timeout_s=600.0)
        except AgentOpError as error:
            if error.kind != "busy":
                raise
            raise BusyError(
                f"{target.name}: {error.what}; nothing was removed", evidence=error.evidence, way_out="orch env list"
            ) from error
    return RemovedReport(target.name, tuple(answer.header["removed"]))


async def environments_there(session: AgentSession, target: Target) -> Mapping[str, Any]:
    """`env_list`'s answer: what is built, what is current, what the live run uses."""
    return (await session.request("env_list", base=target.base)).header


def _choose(listed: Mapping[str, Any], wanted: str, target: Target) -> str:
    matches = choose_by_prefix(listed["environments"], wanted)
    if len(matches) == 1:
        return matches[0]
    raise UsageError(
        f"{len(matches)} environments on {target.name} begin with {wanted!r}",
        evidence="there are: " + (", ".join(map(short_environment, listed["environments"])) or "none"),
        way_out="orch env list",
    )


def _purpose_of(listed: Mapping[str, Any], name: str | None, payload: Payload, target: Target) -> str:
    """What an environment was built for; for the one before: what the payload's command runs in."""
    if name is not None:
        purpose = (listed["environments"][name] or {}).get("purpose")
        if purpose:
            return str(purpose)
    elif payload.environment is not None:
        return payload.environment
    raise UsageError(
        f"{target.name}: what the environment is for is not known, and no purpose was named",
        way_out="orch env list\n--purpose NAME says which",
    )
