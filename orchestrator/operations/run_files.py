"""Records on a target that are small enough to be read whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError


async def read_json(session: AgentSession, path: str) -> Mapping[str, Any] | None:
    """None: not there, or not to be read."""
    try:
        reply = await session.request("read_file", path=path)
        value = json.loads(reply.body)
    except (AgentOpError, ValueError):
        return None
    return value if isinstance(value, dict) else None
