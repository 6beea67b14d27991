"""What `orch status --watch` shows: a screen of its own at a terminal, plain lines anywhere else.

Rule: the terminal is given back as it was, however the watch ends, with the last frame below what was there before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self, TextIO

from orchestrator.cli.output import unwritable
from orchestrator.reports.fitting import clip
from orchestrator.reports.status import StatusReport
from orchestrator.reports.trend import Trend
from orchestrator.reports.watch_frame import Line, Tone, change_key, render_change, render_frame
from orchestrator.reports.watch_table import Watched, render_table

TABLE_EVERY_S = 0.5
QUIET_S = 30.0
"""Without a terminal: a line at least so often, also when nothing changes."""
# The other screen, so that resizing cannot garble what was there before; no cursor; no wrapping.
KEEP = "\x1b[?25l\x1b[?7l"
ENTER = f"\x1b[?1049h{KEEP}\x1b[2J"
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
COLOURS = {Tone.TITLE: "1", Tone.GOOD: "32", Tone.BAD: "31", Tone.WARN: "33", Tone.DIM: "2"}


class Display(Protocol):
    def __enter__(self) -> Display: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Whatever happened: give the terminal back."""

    def show(self, report: StatusReport) -> None: ...


def open_display() -> Display:
    return Screen(sys.stdout, terminal_size, coloured=has_colours()) if has_screen() else Lines(sys.stdout)


def has_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def has_colours() -> bool:
    return not os.environ.get("NO_COLOR")


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
        try:
            print(render_change(report), file=self._stream, flush=True)
            if report.run and report.traceback and self._failed != report.run.run_id:
                self._failed = report.run.run_id
                print(report.traceback, file=self._stream, flush=True)
        except OSError as error:
            raise unwritable(error) from error


class Canvas(ABC):
    """Redraws lines in place; again whenever the terminal changes its size or comes back from Ctrl-Z."""

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]], *, coloured: bool) -> None:
        self._stream = stream
        self._size = size
        self._coloured = coloured
        self._bars = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self._has_screen = False
        self._drawn = ""

    @abstractmethod
    def _lines(self, width: int, height: int | None) -> list[Line]:
        """height None: all, as it stays on the screen at the end."""

    def __enter__(self) -> Self:
        return self

    def _show(self) -> None:
        """The first one takes the screen: what fails before it is said on the screen that was there."""
        if not self._has_screen:
            self._has_screen = True
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGWINCH, self._anew)
            loop.add_signal_handler(signal.SIGTSTP, self._suspended)
            loop.add_signal_handler(signal.SIGCONT, self._back)
            self._write(ENTER)
        self._draw()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._has_screen:
            return
        try:
            self._write(LEAVE)
            columns, _ = self._size()
            self._write("".join(self._styled(line) + "\n" for line in self._lines(columns, None)))
        except OSError:
            pass  # the terminal itself is gone

    def _draw(self) -> None:
        columns, rows = self._size()
        # A window that is narrower than a frame can be: the terminal would put each line's end over what fits.
        lines = [Line(clip(line.text, columns), line.tone) for line in self._lines(columns, rows)]
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

    def _back(self) -> None:
        """After a stop that nobody may handle (SIGSTOP) the other screen is still there, and the shell wrote on it."""
        self._write(KEEP)
        self._anew()

    def _write(self, text: str) -> None:
        """At once, and also where the terminal's encoding lacks a character."""
        data = text.encode(self._stream.encoding or "utf-8", "replace")
        self._stream.buffer.write(data)
        self._stream.buffer.flush()


class Screen(Canvas):
    """One target."""

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]], *, coloured: bool) -> None:
        super().__init__(stream, size, coloured=coloured)
        self._report: StatusReport | None = None
        self._trend = Trend()

    def show(self, report: StatusReport) -> None:
        self._report = report
        self._trend.take(report)
        self._show()

    def _lines(self, width: int, height: int | None) -> list[Line]:
        assert self._report is not None
        return render_frame(self._report, width=width, height=height, trend=self._trend, bars=self._bars)


class TableScreen(Canvas):
    """Several targets. However many reports come, it is drawn a few times a second."""

    def __init__(
        self,
        watched: Sequence[Watched],
        stream: TextIO,
        size: Callable[[], tuple[int, int]],
        *,
        coloured: bool,
    ) -> None:
        super().__init__(stream, size, coloured=coloured)
        self._watched = watched
        self._due: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        if not self._has_screen:
            self._show()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(TABLE_EVERY_S, self._draw_due)

    def _draw_due(self) -> None:
        self._due = None
        self._draw()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._due is not None:
            self._due.cancel()
        super().__exit__(kind, error, at)

    def _lines(self, width: int, height: int | None) -> list[Line]:
        return render_table(self._watched, width=width, height=height, bars=self._bars)
