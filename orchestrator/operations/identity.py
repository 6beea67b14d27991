"""What a run on this target would start from now. Nothing is started or changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator import __version__
from orchestrator.agent.client import AgentSession
from orchestrator.inventory.model import Payload, Target
from orchestrator.ledger.run_environment import KEY
from orchestrator.ledger.runspec import build_run_spec, cache_folders
from orchestrator.operations.run_environment import environment_for_launch
from orchestrator.operations.session import agent_and_config, require_payload, who_asks
from orchestrator.transport.tracing import Trace

LIMIT_S = 90.0
"""More than the deadlines of all that is asked there, one after the other."""


@dataclass(frozen=True)
class Identity:
    target: str
    label: str
    record: Mapping[str, Any]
    """As fingerprint.json, without a run's id."""


async def identity_now(target: Target, *, trace: Trace | None = None) -> Identity:
    """Raises PreflightError without a payload, and what connecting raises."""
    payload = require_payload(target)
    async with agent_and_config(target, trace) as (session, config):
        record = await ask_identity(session, target, payload, config)
    return Identity(target.name, target.label, record)


async def ask_identity(
    session: AgentSession,
    target: Target,
    payload: Payload,
    config: Awaitable[dict[str, str] | None] | None,
    settings: Mapping[str, object] | None = None,
) -> Mapping[str, Any]:
    """As a launch with these settings on top of the inventory's would begin. config: what the host says of the
    container; None: nobody asked it."""
    environment, problem = await environment_for_launch(session, target, payload)
    spec = build_run_spec(
        target, payload, run_id="", settings=settings or {}, resume_from=None, who=who_asks(), now_s=0.0
    )
    if environment is not None:
        spec[KEY] = environment.record()
    container = None if config is None else await asyncio.shield(asyncio.ensure_future(config))
    reply = await session.request(
        "fingerprint_now",
        base=target.base,
        spec=spec,
        argv=list(payload.command),
        environment={**payload.variables, **cache_folders(target, payload)},
        python=environment.python if environment else payload.python,
        python_problem=problem.text if problem else None,
        gpus=payload.devices != 0,
        observed={"orch_version": __version__, "container": container, "expected": dict(payload.expected.hashes)},
        timeout_s=LIMIT_S,
    )
    return reply.header
