"""How a waited-for run shows itself on stderr: one rewritten line at a terminal, a line a change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from orchestrator.cli.output import Output
from orchestrator.probes.text import plain_text
from orchestrator.reports.launch import render_progress

QUIET_INTERVAL_S = 10.0
"""Without a terminal: at most one line in this time, unless the phase changes."""


class WaitDisplay:
    def __init__(self, output: Output, *, labelled: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._labelled = labelled
        self._clock = clock
        self._rewrites = sys.stderr.isatty() and not labelled
        self._last_phase: dict[str, object] = {}
        self._last_s: dict[str, float] = {}
        self._dirty = False

    def for_target(self, name: str) -> Callable[[Mapping[str, object]], None]:
        def show(status: Mapping[str, object]) -> None:
            line = plain_text(render_progress(status))
            if self._rewrites:
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
                self._dirty = True
                return
            phase, now = status.get("phase"), self._clock()
            if phase == self._last_phase.get(name) and now - self._last_s.get(name, 0.0) < QUIET_INTERVAL_S:
                return
            self._last_phase[name], self._last_s[name] = phase, now
            self._output.note(f"{name}: {line}" if self._labelled else line)

        return show

    def finish(self) -> None:
        if self._dirty:
            print(file=sys.stderr, flush=True)
            self._dirty = False
