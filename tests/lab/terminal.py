"""A shell in a real tmux, as a person has one, on the controller's side of a lab."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.lab.place import PROJECT, Place


class Shell:
    """A shell on the controller's side in a tmux of our own, with `orch` on its PATH and the inventory before it."""

    def __init__(self, place: Place, columns: int, rows: int) -> None:
        self._place = place
        self._tmux = ["tmux", "-S", str(place.folder / "terminal"), "-f", "/dev/null"]
        commands = place.folder / "bin"
        commands.mkdir(exist_ok=True)
        orch = commands / "orch"
        orch.write_text(f'#!/bin/sh\nPYTHONPATH={PROJECT} exec {sys.executable} -m orchestrator "$@"\n')
        orch.chmod(0o755)
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        environment = place.lab.environment({**place.environment(), "PATH": path, "PS1": "$ ", "TERM": "screen"})
        environment.pop("NO_COLOR", None)
        inside = place.lab.command(["bash", "--norc"], place.folder)
        self._run(
            "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(place.folder), *inside, env=environment
        )
        self.columns = columns

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True, env=env)
        return done.stdout

    def type(self, line: str) -> None:
        self._run("send-keys", "-l", "--", line)
        self._run("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))
        self.columns = columns

    def screen(self, *options: str) -> list[str]:
        return self._run("capture-pane", "-p", *options).splitlines()

    def history(self) -> str:
        """With what scrolled off; what was wrapped is joined."""
        return "\n".join(self.screen("-J", "-S", "-"))

    def about(self, name: str) -> str:
        return self._run("display-message", "-p", f"#{{{name}}}").strip()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


def whole_frame(shell: Shell, facts: Sequence[str]) -> str | None:
    """The screen, once it shows all of the facts and no line of it is wrapped."""
    lines = shell.screen()
    text = "\n".join(lines)
    return text if lines == shell.screen("-J") and all(fact in text for fact in facts) else None
