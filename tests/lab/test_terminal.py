"""attach and shell on a terminal: a real tmux holds it, as a person's would."""

from __future__ import annotations

import itertools
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said
from tests.waiting import eventually

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"a{next(numbers)}")
    place.write(command=["python3", "foreign.py", "100000", "0.05"], session="window")
    yield place
    place.clean()


class Terminal:
    """One pane of a tmux of our own in which a command runs on the controller's side."""

    def __init__(self, place: Place, *words: str) -> None:
        self._tmux = ["tmux", "-S", str(place.folder / "terminal"), "-f", "/dev/null"]
        # fmt: off
        subprocess.run(
            [*self._tmux, "set-option", "-g", "remain-on-exit", "on", ";", "new-session", "-d", "-x", "120", "-y", "30",
             shlex.join(place.lab.command(place.argv(*words), place.folder))],
            env=place.lab.environment(place.environment()), check=True,
        )
        # fmt: on

    def screen(self) -> str:
        """With its history: tmux scrolls when it says that the pane is dead."""
        argv = [*self._tmux, "capture-pane", "-p", "-J", "-S", "-"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def type(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def ended(self) -> bool:
        argv = [*self._tmux, "display-message", "-p", "#{pane_dead}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == "1"

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


def test_attach_shows_the_run_and_detaching_leaves_it(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch")
    terminal = Terminal(place, "attach")
    try:
        eventually(lambda: "Ktok/s" in terminal.screen(), "attach shows nothing")
        terminal.type("C-b", "d")
        eventually(terminal.ended, "it does not detach")
    finally:
        terminal.close()
    assert place.status()["run"]["state"]["phase"] == "running"


def test_ctrl_c_in_the_session_reaches_the_training(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch")
    terminal = Terminal(place, "attach")
    try:
        eventually(lambda: "Ktok/s" in terminal.screen(), "attach shows nothing")
        terminal.type("C-c")
        eventually(lambda: place.status()["run"]["state"]["phase"] == "ended", "it did not hear")
    finally:
        terminal.close()
    assert "KeyboardInterrupt" in place.ok("status")


def test_a_shell_is_a_shell(place: Place) -> None:
    terminal = Terminal(place, "shell")
    try:
        eventually(lambda: terminal.screen().strip() != "", "no prompt")
        terminal.type("echo $((6*7)); tty; exit 3", "Enter")
        eventually(terminal.ended, f"the shell does not end: {terminal.screen()}")
        assert "42" in terminal.screen() and "/dev/pts/" in terminal.screen()
    finally:
        terminal.close()


def test_attach_without_a_terminal_or_a_session_says_what_to_do(place: Place) -> None:
    done = place.orch("attach")
    assert done.returncode == 2 and "terminal" in said(done)
    terminal = Terminal(place, "attach")
    try:
        eventually(terminal.ended, "it hangs")
        assert "no session to attach to" in terminal.screen()
    finally:
        terminal.close()
