"""The one way tests wait: on a condition, with a deadline that says what did not happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, timeout_s: float = 20.0) -> T:
    """What the condition gives once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)
    return found


async def until(condition: Callable[[], object], what: str = "what was waited for", timeout_s: float = 20.0) -> None:
    """The same, for tests that have other work going on meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        await asyncio.sleep(0.02)
