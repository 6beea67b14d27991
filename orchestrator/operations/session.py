"""One agent on one target for the length of one operation."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.container.target import ContainerTransport, open_target
from orchestrator.errors import AuthError, BusyError, ContainerError, PreflightError
from orchestrator.inventory.model import Payload, Target
from orchestrator.transport.tracing import Trace


def require_payload(target: Target) -> Payload:
    """Raises PreflightError when the inventory gives this target nothing to run."""
    if target.payload is None:
        raise PreflightError(
            f"{target.name} has no payload",
            evidence="the inventory gives this target no `payload:`",
            way_out=f"name one of the inventory's payloads in `payload:` of {target.name}",
        )
    return target.payload


def interpreters(target: Target) -> list[str]:
    """Where to look for a Python for the agent, best first (python3 is tried in any case)."""
    wanted = [target.python, "python3", target.payload.python if target.payload else None]
    return [python for python in wanted if python]


@asynccontextmanager
async def agent_session(target: Target, trace: Trace | None) -> AsyncIterator[AgentSession]:
    """Raises what the transport and the container raise; closes the agent and the connection in any case."""
    async with _connected(target, trace) as (_, session):
        yield session


@asynccontextmanager
async def agent_and_config(
    target: Target, trace: Trace | None
) -> AsyncIterator[tuple[AgentSession, Awaitable[dict[str, str] | None]]]:
    """Like agent_session, and what the host's file says of the container: read over the same connection meanwhile."""
    async with _connected(target, trace) as (transport, session):
        reading = asyncio.ensure_future(transport.container_config())
        try:
            yield session, reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def agent_sessions(
    target: Target, trace: Trace | None
) -> AsyncIterator[tuple[AgentSession, AgentSession | None, str]]:
    """On the target and on its host, over one connection; for a target that is a host, the same one twice.

    The host's is None where none can be had (a login that may only use pct, no Python); the text says why.
    """
    async with _connected(target, trace) as (transport, session), AsyncExitStack() as stack:
        host, why = await _on_host(target, transport, session, stack, trace)
        yield session, host, why


@dataclass(frozen=True)
class Sessions:
    """All that there is to ask of a target, over one connection."""

    target: AgentSession
    host: AgentSession | None
    """The same one for a target that is a host; None: none can be had."""
    why_no_host: str
    config: Awaitable[dict[str, str] | None]
    """What the host's file says of the container."""


@asynccontextmanager
async def all_sessions(target: Target, trace: Trace | None) -> AsyncIterator[Sessions]:
    """Raises what the transport and the container raise."""
    async with _connected(target, trace) as (transport, session), AsyncExitStack() as stack:
        reading = asyncio.ensure_future(transport.container_config())
        try:
            host, why = await _on_host(target, transport, session, stack, trace)
            yield Sessions(session, host, why, reading)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _on_host(
    target: Target, transport: ContainerTransport, session: AgentSession, stack: AsyncExitStack, trace: Trace | None
) -> tuple[AgentSession | None, str]:
    if target.kind == "none":
        return session, ""
    try:
        host = await AgentSession.open(transport.on_host())
    except (ContainerError, AuthError) as error:
        return None, f"{error.what}: {error.evidence}" if error.evidence else error.what
    stack.push_async_callback(host.close)
    await stack.enter_async_context(_traced(host, trace))
    return host, ""


@asynccontextmanager
async def _connected(target: Target, trace: Trace | None) -> AsyncIterator[tuple[ContainerTransport, AgentSession]]:
    transport = await open_target(target, trace=trace)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        session = await AgentSession.open(transport, pythons=interpreters(target))
        stack.push_async_callback(session.close)
        session.on_host = transport.on_host
        await stack.enter_async_context(_traced(session, trace))
        yield transport, session


@asynccontextmanager
async def _traced(session: AgentSession, trace: Trace | None) -> AsyncIterator[None]:
    """For `-v`: every program that the agent starts is told as well."""
    if trace is None:
        yield
        return
    ready = asyncio.Event()

    async def listen() -> None:
        try:
            async for event in session.stream("trace"):
                ready.set()
                if "argv" in event.header:
                    trace(f"{session.label}, by the agent", event.header["argv"])
        finally:
            ready.set()

    listening = asyncio.create_task(listen())
    await ready.wait()
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def take_lease(session: AgentSession, target: Target) -> None:
    """One writer per target; freed when the agent ends, however it does. Raises BusyError naming the holder."""
    try:
        await session.request(
            "lease_acquire", base=target.base, who=getpass.getuser(), host=os.uname().nodename, pid=os.getpid()
        )
    except AgentOpError as error:
        if error.kind != "busy":
            raise
        raise BusyError(
            f"another orch is changing {target.name}",
            evidence=error.what,
            way_out="wait for it to end; a holder that dies or is cut off frees the lease by itself",
        ) from error


def who_asks() -> str:
    """`me@laptop`, for records."""
    return f"{getpass.getuser()}@{os.uname().nodename}"


async def release_lease(session: AgentSession, target: Target) -> None:
    await session.request("lease_release", base=target.base)
