"""The last failure of a log, whole, however long the log and whatever was written behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.client import AgentSession
from orchestrator.agent.far.failure import ANNOUNCED_BYTES, NEAR_BYTES, PIECE_BYTES
from orchestrator.operations.failure import last_traceback
from orchestrator.probes.log import find_first_traceback
from tests.local_agent import LocalStarter

HEAD = "Traceback (most recent call last):\n"


def raised(exception: str, frames: int = 1) -> str:
    lines = "".join(f'  File "train.py", line {number}, in f\n    f({number})\n' for number in range(frames))
    return HEAD + lines + exception + "\n"


IGNORED = "Exception ignored in: <function x.__del__ at 0x7f>\n" + raised("AttributeError: late")
THREAD = "Exception in thread Thread-1:\n"
STEPS = "step 5 loss 1.25\n"


def steps(length_bytes: int) -> str:
    return STEPS * (length_bytes // len(STEPS))


async def last(tmp_path: Path, text: str) -> str | None:
    path = tmp_path / "run.log"
    path.write_text(text)
    session = await AgentSession.open(LocalStarter())
    try:
        found = await last_traceback(session, str(path))
    finally:
        await session.close()
    return None if found is None else found.text


CHAINED = raised("KeyError: 'k'", 40) + "\nDuring handling of the above exception, another exception occurred:\n\n"
LONG = CHAINED + raised("ValueError: too long", 12000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        (steps(3 * PIECE_BYTES), None),
        (raised("OSError: disk") + steps(3 * PIECE_BYTES), raised("OSError: disk")),
        (LONG + steps(PIECE_BYTES), LONG),
        (raised("OSError: disk") + steps(2 * PIECE_BYTES) + IGNORED + steps(9), raised("OSError: disk")),
        (IGNORED + steps(PIECE_BYTES) + IGNORED, None),
        (raised("OSError: 1") + steps(2 * NEAR_BYTES) + raised("OSError: 2"), raised("OSError: 2")),
        (steps(99) + THREAD + raised("A: b"), THREAD + raised("A: b")),
        ("x" * 9000 + raised("A: b"), "x" * ANNOUNCED_BYTES + raised("A: b")),
    ],
    ids=["empty", "none", "early", "long", "ignored", "only-ignored", "two", "thread", "glued"],
)  # fmt: skip
async def test_the_last_failure_is_whole(tmp_path: Path, text: str, expected: str | None) -> None:
    found = await last(tmp_path, text)
    assert found == (None if expected is None else expected.rstrip("\n"))


@pytest.mark.parametrize("split", [0, 1, 16, len(HEAD) - 2])
async def test_a_mark_on_the_edge_of_a_piece_is_found(tmp_path: Path, split: int) -> None:
    behind = "y" * (PIECE_BYTES - len(raised("A: b")) + split - 1) + "\n"
    found = await last(tmp_path, "z" * 77 + "\n" + raised("A: b") + behind)
    assert found is not None and found.startswith(raised("A: b").rstrip())


async def test_the_first_failure_and_no_log_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(steps(2 * PIECE_BYTES) + raised("MemoryError: 0") + steps(PIECE_BYTES) + raised("OSError: 9"))
    session = await AgentSession.open(LocalStarter())
    try:
        reply = await session.request("find_failure", path=str(path), which="first")
        first = find_first_traceback(reply.body.decode())
        assert first is not None and first.exception == "MemoryError: 0"
        assert await last_traceback(session, str(tmp_path / "none.log")) is None
    finally:
        await session.close()
