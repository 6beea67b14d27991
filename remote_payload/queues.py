"""The bounded way from target to drafter.

Rule: bounded by BYTES, not by items, and nobody waits for ever: closing it, from either side, with or without an error,
wakes everyone. An item larger than the bound passes alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Deque, Generic, Optional, Tuple, TypeVar

Item = TypeVar("Item")


class Closed(Exception):
    """The queue was closed and holds nothing more."""


class ByteQueue(Generic[Item]):
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes_held = 0
        self.put_wait_s = 0.0
        """Time producers spent waiting for room: the drafter is the slower side."""
        self.get_wait_s = 0.0
        """Time consumers spent waiting for an item: the target is the slower side."""
        self._items: Deque[Tuple[Item, int]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: Optional[BaseException] = None

    def put(self, item: Item, size_bytes: int) -> None:
        """Raises Closed when nobody will take it."""
        self.reserve(size_bytes)
        self.fill(item, size_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Room for an item that is still to come. Raises Closed when nobody will take it."""
        with self._changed:
            began = time.monotonic()
            self._changed.wait_for(
                lambda: self._closed or not self.bytes_held or self.bytes_held + size_bytes <= self.max_bytes
            )
            self.put_wait_s += time.monotonic() - began
            if self._closed:
                raise Closed
            self.bytes_held += size_bytes

    def fill(self, item: Item, size_bytes: int) -> None:
        """What room was reserved for. Raises Closed."""
        with self._changed:
            if self._closed:
                raise Closed
            self._items.append((item, size_bytes))
            self._changed.notify_all()

    def get(self) -> Item:
        """Raises the producer's error at once if there is one; Closed when the queue is closed and empty."""
        with self._changed:
            began = time.monotonic()
            self._changed.wait_for(lambda: self._closed or bool(self._items))
            self.get_wait_s += time.monotonic() - began
            if self._error is not None:
                raise self._error
            if not self._items:
                raise Closed
            item, size_bytes = self._items.popleft()
            self.bytes_held -= size_bytes
            self._changed.notify_all()
            return item

    def close(self, error: Optional[BaseException] = None) -> None:
        """No more will be put. The first error given is kept; closing twice is harmless."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()
