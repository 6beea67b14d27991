"""What a push would send, asked without changing anything over there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.far.manifest import pack
from orchestrator.agent.tree_push import transfer_error
from orchestrator.agent.tree_source import TreeSource


@dataclass(frozen=True)
class PushPlan:
    already_there: bool
    files_missing: int
    """Different contents, not names."""
    bytes_missing: int


async def plan_push(session: AgentSession, source: TreeSource, store: str) -> PushPlan:
    """Raises TransferError."""
    manifest = await asyncio.to_thread(pack, source.entries)
    try:
        answer = (await session.request("tree_plan", body=manifest, store=store)).header
    except AgentOpError as error:
        raise transfer_error(session.label, error) from error
    return PushPlan(answer["already_there"], answer["files_missing"], answer["bytes_missing"])
