"""One request's two-way channel, as an op sees it: events out, further frames in, each with a bounded window.

Rule: neither direction holds more than WINDOW_BYTES that the other side has not taken; `emit` waits for room,
and going over the window in the inward direction fails the request (the controller counts the same way).
"""

from __future__ import annotations

import threading
from collections import deque

from .errors import Cancelled, OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, Deque, Dict, Tuple

    Data = Dict[str, Any]

WINDOW_BYTES = 8 * 1024 * 1024
FRAME_COST_BYTES = 256
"""Counted for each frame beside its body, so that empty frames are bounded too."""
ACKNOWLEDGE_BYTES = WINDOW_BYTES // 8


class Channel:
    """`send(header, body)` writes one whole frame to the controller."""

    def __init__(self, request_id: int, send: Callable[[Data, bytes], None]) -> None:
        self.request_id = request_id
        self.cancelled = threading.Event()
        self._send = send
        self._changed = threading.Condition()
        self._inbox: Deque[Tuple[Data, bytes]] = deque()
        self._inbox_bytes = 0
        self._taken = 0
        self._room = WINDOW_BYTES
        self._overflow = False

    def emit(self, data: Data, body: bytes = b"") -> None:
        """Send an event. Waits while the controller is behind. Raises Cancelled."""
        cost = FRAME_COST_BYTES + len(body)
        with self._changed:
            while self._room < cost and self._room < WINDOW_BYTES and not self.cancelled.is_set():
                self._changed.wait(1.0)
            self._room -= cost
        self.check()
        self._send({"id": self.request_id, "type": "event", "data": data}, body)

    def receive(self) -> Tuple[Data, bytes]:
        """The next frame of this request. Raises as `check` does."""
        with self._changed:
            while not self._inbox:
                self.check()
                self._changed.wait(1.0)
            self.check()
            data, body = self._inbox.popleft()
            cost = FRAME_COST_BYTES + len(body)
            self._inbox_bytes -= cost
            self._taken += cost
            acknowledge, self._taken = (self._taken, 0) if self._taken >= ACKNOWLEDGE_BYTES else (0, self._taken)
        if acknowledge:
            self._send({"id": self.request_id, "type": "taken", "bytes": acknowledge}, b"")
        return data, body

    def check(self) -> None:
        """Raises Cancelled when the request was given up, OpError when its inbox overflowed."""
        if self.cancelled.is_set():
            raise Cancelled()
        if self._overflow:
            raise OpError("protocol", "the controller sent more than the window allows")

    # Called by the server's reader thread; never waits.

    def deliver(self, data: Data, body: bytes) -> None:
        with self._changed:
            self._inbox_bytes += FRAME_COST_BYTES + len(body)
            if self._inbox_bytes > 2 * WINDOW_BYTES:
                self._overflow = True
                self._inbox.clear()
            else:
                self._inbox.append((data, body))
            self._changed.notify_all()

    def add_room(self, amount: int) -> None:
        with self._changed:
            self._room += amount
            self._changed.notify_all()

    def cancel(self) -> None:
        with self._changed:
            self.cancelled.set()
            self._changed.notify_all()
