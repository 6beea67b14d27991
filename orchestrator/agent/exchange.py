"""One request and what belongs to it: frames out, events and the final reply in, each within the window.

Rule: what comes in waits here until it is taken, and only what was taken is acknowledged; so a slow reader
slows the far side down instead of filling memory, and no exchange holds up another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.far.channel import ACKNOWLEDGE_BYTES, FRAME_COST_BYTES, WINDOW_BYTES
from orchestrator.errors import OrchError

Header = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    header: dict[str, Any]
    body: bytes
    final: bool
    """False: an event of a request that goes on."""


class Exchange:
    """Made by AgentSession.exchange, whose block cancels what has not ended when it is left."""

    def __init__(self, request_id: int, post: Callable[[Header, bytes], Awaitable[None]]) -> None:
        self.request_id = request_id
        self.ended = False
        """The far side has sent its last frame for this request, or never will."""
        self._post = post
        self._arrived: deque[Reply] = deque()
        self._failure: OrchError | None = None
        self._changed = asyncio.Event()
        self._room = WINDOW_BYTES
        self._taken = 0

    async def send(self, data: dict[str, Any], body: bytes = b"") -> None:
        """Waits while the far side is behind. Raises what ended the request, if something did."""
        cost = FRAME_COST_BYTES + len(body)
        while self._room < cost and self._room < WINDOW_BYTES and not self.ended:
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure
        self._room -= cost
        await self._post({"id": self.request_id, "type": "data", "data": data}, body)

    async def receive(self) -> Reply:
        """The next event, or the final reply. Raises AgentOpError, OutcomeUnknownError."""
        while not self._arrived and self._failure is None:
            self._changed.clear()
            await self._changed.wait()
        if not self._arrived:
            assert self._failure is not None
            raise self._failure
        reply = self._arrived.popleft()
        self._taken += FRAME_COST_BYTES + len(reply.body)
        if self._taken >= ACKNOWLEDGE_BYTES and not self.ended:
            taken, self._taken = self._taken, 0
            await self._post({"id": self.request_id, "type": "taken", "bytes": taken}, b"")
        return reply

    # Called by the session's reader; never waits.

    def accept(self, header: Header, body: bytes) -> None:
        kind = header.get("type")
        if kind == "event":
            self._arrived.append(Reply(header.get("data") or {}, body, final=False))
        elif kind == "reply":
            self._arrived.append(Reply(header.get("data") or {}, body, final=True))
            self.ended = True
        elif kind == "error":
            told = header.get("error") or {}
            self.fail(AgentOpError(str(told.get("kind")), str(told.get("message")), str(told.get("evidence") or "")))
        elif kind == "taken":
            self._room += int(header.get("bytes") or 0)
        self._changed.set()

    def fail(self, error: OrchError) -> None:
        if not self.ended:
            self.ended = True
            self._failure = error
        self._changed.set()
