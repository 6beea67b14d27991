"""What `orch status --watch` shows: a screen of its own at a terminal, plain lines anywhere else.

Rule: the terminal is given back as it was, however the watch ends, with the last frame below what was there before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TextIO

from orchestrator.reports.status import StatusReport
from orchestrator.reports.watch_frame import Line, Tone, change_key, render_change, render_frame

QUIET_S = 30.0
"""Without a terminal: a line at least so often, also when nothing changes."""
# The other screen, so that resizing cannot garble what was there before; no cursor; no wrapping.
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
COLOURS = {Tone.TITLE: "1", Tone.GOOD: "32", Tone.BAD: "31", Tone.WARN: "33", Tone.DIM: "2"}


class Display(Protocol):
    def __enter__(self) -> Display: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Whatever happened: give the terminal back."""

    def show(self, report: StatusReport) -> None: ...


def open_display() -> Display:
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return Screen(sys.stdout, terminal_size, coloured=not os.environ.get("NO_COLOR"))
    return Lines(sys.stdout)


def terminal_size() -> tuple[int, int]:
    """Columns and rows."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return found.columns or 80, found.lines or 24


class Lines:
    """A line when something changed, and failures whole."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._said: tuple[object, ...] | None = None
        self._said_s = 0.0
        self._failed: str | None = None

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def show(self, report: StatusReport) -> None:
        now, news = self._clock(), change_key(report)
        if news == self._said and now - self._said_s < QUIET_S:
            return
        self._said, self._said_s = news, now
        print(render_change(report), file=self._stream, flush=True)
        if report.run and report.traceback and self._failed != report.run.run_id:
            self._failed = report.run.run_id
            print(report.traceback, file=self._stream, flush=True)


class Screen:
    """Redraws the frame in place; again whenever the terminal changes its size or comes back from Ctrl-Z."""

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]], *, coloured: bool) -> None:
        self._stream = stream
        self._size = size
        self._coloured = coloured
        self._report: StatusReport | None = None
        self._drawn = ""

    def __enter__(self) -> Screen:
        return self

    def show(self, report: StatusReport) -> None:
        """The first one takes the screen: what fails before it is said on the screen that was there."""
        first = self._report is None
        self._report = report
        if first:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGWINCH, self._anew)
            loop.add_signal_handler(signal.SIGTSTP, self._suspended)
            self._write(ENTER)
        self._draw()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._report is None:
            return
        try:
            self._write(LEAVE)
            columns, _ = self._size()
            last = render_frame(self._report, width=columns, height=None)
            self._write("".join(self._styled(line) + "\n" for line in last))
        except OSError:
            pass  # the terminal itself is gone

    def _draw(self) -> None:
        assert self._report is not None
        columns, rows = self._size()
        lines = render_frame(self._report, width=columns, height=rows)
        # Erased first: behind a line that fills its row, erasing would take its last character.
        drawn = "\x1b[H" + "\r\n".join("\x1b[K" + self._styled(line) for line in lines)
        drawn += "\x1b[J" if len(lines) < rows else ""
        if drawn != self._drawn:
            self._drawn = drawn
            self._write(drawn)

    def _styled(self, line: Line) -> str:
        colour = COLOURS.get(line.tone) if self._coloured else None
        return f"\x1b[{colour}m{line.text}\x1b[0m" if colour else line.text

    def _anew(self) -> None:
        self._drawn = ""
        self._write("\x1b[2J")
        self._draw()

    def _suspended(self) -> None:
        loop = asyncio.get_running_loop()
        self._write(LEAVE)
        loop.remove_signal_handler(signal.SIGTSTP)
        signal.raise_signal(signal.SIGTSTP)  # stops here, until `fg`
        loop.add_signal_handler(signal.SIGTSTP, self._suspended)
        self._write(ENTER)
        self._anew()

    def _write(self, text: str) -> None:
        """At once, and also where the terminal's encoding lacks a character."""
        data = text.encode(self._stream.encoding or "utf-8", "replace")
        self._stream.buffer.write(data)
        self._stream.buffer.flush()
