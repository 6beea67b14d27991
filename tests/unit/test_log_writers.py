"""The same log, as other programs hand it on: what it died of does not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.probes.log_reading import read_log

FOLDER = Path(__file__).parent.parent / "data" / "read" / "log"
WRAPPED = {"dynamo-02-fx-message-wrapped-80.txt", "nccl-watchdog-stuck-wrapped-pane.txt"}
"""Rows that a pane has cut: whoever puts something in front of each has made other words of them."""
BARE = {"traceback-only-its-end.txt"}
"""An exception without its stack: behind a time it may as well be one that was only logged."""
OTHER = ("healthy", "throughput", "tmux")
MOST_BYTES = 6000
CASES = [
    path
    for path in sorted(FOLDER.glob("*.txt"))
    if not path.name.startswith(OTHER)
    and path.name not in WRAPPED | BARE
    and path.stat().st_size < MOST_BYTES
    and b"\r" not in path.read_bytes()
]


def before_each(words: str, behind: str = "") -> Callable[[str], str]:
    return lambda text: "\n".join(f"{words}{line}{behind}" for line in text.split("\n"))


WRITERS = {
    "kubernetes": before_each("2026-11-29T10:00:00.123456789Z stderr F "),
    "journald": before_each("Nov 29 10:00:00 box python[123]: "),
    "logging": before_each("2026-11-29 10:00:00,123 - root - ERROR - "),
    "compose": before_each("trainer-1  | "),
    "ray": before_each("(TrainWorker pid=123) "),
    "torchrun": before_each("[rank0]: "),
    "pasted": before_each("    "),
    "quoted": before_each("> "),
    "coloured": before_each("\x1b[31m", "\x1b[0m"),
    "Windows": before_each("", "\r"),
}


def root_of(text: str) -> str | None:
    root = read_log(text).root
    return None if root is None else root.kind


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_who_hands_a_log_on_changes_nothing_of_what_it_died_of(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    expected = root_of(text)
    assert {name: root_of(write(text)) for name, write in WRITERS.items()} == dict.fromkeys(WRITERS, expected)


def test_a_rank_and_a_pid_in_front_stand_where_they_are_read() -> None:
    text = "Nov 29 10:00:00 box python[123]: Killed\n(Train rank=7 pid=42) Bus error (core dumped)\n"
    killed, bus_error = read_log(text).failures
    assert killed.kind == "killed" and bus_error.kind == "bus_error"
    assert bus_error.ranks == (7,) and bus_error.spans["ranks"].of(text) == "7"
