"""`orch status --watch` as it is typed: into a shell in a real tmux of 80, 60 and 200 columns, and into a pipe."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.real import RealLab
from tests.lab.place import Place
from tests.lab.terminal import Shell, whole_frame
from tests.waiting import eventually

numbers = itertools.count(1)


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"x{next(numbers)}")
    yield place
    place.clean()


def test_the_watch_is_drawn_at_every_size_and_leaves_the_terminal_as_it_was(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.05"], session="window")
    place.ok("deploy")
    place.ok("launch")
    run_id = place.status()["run"]["run_id"]
    shell = Shell(place, 80, 24)
    try:
        shell.type("echo before the watch")
        shell.type("orch status --watch")
        facts = [run_id, "running for", "loss 0.", "12.5 Ktok/s", "MiB", "up ", "GB free", "| step"]
        for columns, rows in ((80, 24), (60, 24), (200, 50), (60, 18)):
            shell.resize(columns, rows)
            frame = eventually(lambda: whole_frame(shell, facts), f"no frame at {columns} columns", 30)
            assert max(map(len, frame.splitlines())) <= columns
            assert re.search(r"^training +step \d+, loss", frame, re.MULTILINE)
            assert "before the watch" not in frame
        assert (shell.about("alternate_on"), shell.about("cursor_flag")) == ("1", "0")
        shell.press("C-c")
        eventually(lambda: "goes on" in shell.history(), "it does not end")
        shell.type("echo exit code $?")
        eventually(lambda: "exit code 130" in shell.history(), "no exit code")
        assert (shell.about("alternate_on"), shell.about("cursor_flag"), shell.about("wrap_flag")) == ("0", "1", "1")
        history = shell.history()
        assert "before the watch" in history, "what was there before is there again"
        assert f"run        {run_id}" in history.partition("orch status --watch")[2], "the last frame stays"
    finally:
        shell.close()
    assert place.status()["run"]["state"]["phase"] == "running"


def test_a_failure_is_seen_while_it_is_watched_and_whole_behind_it(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "60", "0.1", "fail"])
    place.ok("deploy")
    place.ok("launch")
    shell = Shell(place, 60, 30)
    try:
        shell.type("(echo $BASHPID > pid; exec orch status --watch); echo exit code $?")
        eventually(lambda: "failed: exit code 1" in "\n".join(shell.screen()), "no failure", 40)
        what = ("Traceback (most recent call last):", "ValueError: the loss is nan: ü€")
        eventually(lambda: whole_frame(shell, what), "no traceback on the screen")
        os.kill(int((place.folder / "pid").read_text()), signal.SIGTERM)
        eventually(lambda: "exit code 143" in shell.history(), "it does not end")
        assert (shell.about("alternate_on"), shell.about("cursor_flag")) == ("0", "1")
        assert "in main" in shell.history() and "in inner" in shell.history()
    finally:
        shell.close()


@pytest.mark.lab
def test_a_pipe_gets_lines(embedded_lab: EmbeddedLab, tmp_path: Path) -> None:
    place = Place(embedded_lab, tmp_path, f"x{next(numbers)}")
    place.write(command=["python3", "foreign.py", "30", "0.1", "fail"])
    place.ok("deploy")
    try:
        with (tmp_path / "said").open("wb") as said:
            watch = place.popen("status", "--watch", stdout=said, stderr=subprocess.PIPE)
            text = lambda: (tmp_path / "said").read_text()  # noqa: E731
            eventually(lambda: "no run yet" in text(), "it watches", 40)
            place.ok("launch")
            eventually(lambda: "ValueError: the loss is nan: ü€\n" in text(), f"no failure in {text()}", 40)
            watch.send_signal(signal.SIGINT)
            _, errors = watch.communicate(timeout=20)
        assert watch.returncode == 130 and b"goes on" in errors
        assert "\x1b" not in text() and "\r" not in text()
        assert re.search(r"^ct200: \S+, running for .*, step \d+, loss 0\.\d+, 12\.5 Ktok/s", text(), re.MULTILINE)
        assert "failed: exit code 1" in text() and text().count("Traceback") == 1
    finally:
        place.clean()
