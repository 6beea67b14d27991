"""What is written to a terminal, and to anything else, while a target is watched."""

from __future__ import annotations

import asyncio
import io
import signal
from dataclasses import replace

import pytest

from orchestrator.cli import watch_display
from orchestrator.cli.watch_display import ENTER, LEAVE, QUIET_S, Display, Lines, Screen, TableScreen, open_display
from orchestrator.reports.status import StatusReport
from orchestrator.reports.watch_table import Watched
from tests.unit.test_watch_frame import FAILED, REPORT, TRACEBACK


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.size = (60, 24)

    def said(self) -> str:
        """Since the last time."""
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        text = raw.getvalue().decode(self.encoding)
        raw.seek(0)
        raw.truncate()
        return text


def screen(terminal: Terminal, *, coloured: bool = False) -> Screen:
    return Screen(terminal, lambda: terminal.size, coloured=coloured)


async def test_the_screen_is_taken_and_given_back_with_the_last_frame_whole() -> None:
    terminal = Terminal()
    with screen(terminal) as display:
        assert terminal.said() == "", "nothing before there is something to show"
        display.show(REPORT)
        taken = terminal.said()
        assert taken.startswith(ENTER) and "\x1b[H" in taken and "step 120/700" in taken
        display.show(REPORT)
        assert terminal.said() == "", "the same again is not drawn again"
        display.show(FAILED)
        assert "lines above" in terminal.said()
    left = terminal.said()
    assert left.startswith(LEAVE) and TRACEBACK + "ValueError: nan\n" in left
    assert "\x1b" not in left.removeprefix(LEAVE)


async def test_an_error_gives_the_screen_back_too() -> None:
    terminal = Terminal()
    with pytest.raises(KeyError), screen(terminal) as display:
        display.show(REPORT)
        raise KeyError
    assert LEAVE in terminal.said()


async def test_a_new_size_is_drawn_at_once() -> None:
    terminal = Terminal()
    with screen(terminal) as display:
        display.show(REPORT)
        terminal.said()
        terminal.size = (200, 50)
        signal.raise_signal(signal.SIGWINCH)
        await asyncio.sleep(0)
        while not (drawn := terminal.said()):
            await asyncio.sleep(0.01)
        assert drawn.startswith("\x1b[2J") and "ETA 2 min 3 s" in drawn.splitlines()[2]


async def test_colours_are_left_out_when_they_are_not_wanted() -> None:
    for coloured in (False, True):
        terminal = Terminal()
        with screen(terminal, coloured=coloured) as display:
            display.show(REPORT)
        assert ("\x1b[32m" in terminal.said()) == coloured


async def test_a_terminal_that_lacks_a_letter_gets_a_question_mark() -> None:
    terminal = Terminal("ascii")
    with screen(terminal) as display:
        display.show(REPORT)
    assert "| step 8 loss 0.1250 ??" in terminal.said()


def test_elsewhere_it_is_lines_when_something_changes_and_now_and_then() -> None:
    terminal, now = Terminal(), [100.0]
    display = Lines(terminal, lambda: now[0])

    def shown(report: StatusReport) -> int:
        display.show(report)
        text = terminal.said()
        assert "\x1b" not in text
        return text.count("\n")

    assert shown(REPORT) == 1
    now[0] += QUIET_S - 1
    assert shown(replace(REPORT, now_s=1.0)) == 0
    now[0] += 1
    assert shown(REPORT) == 1
    assert shown(FAILED) == 1 + TRACEBACK.count("\n") + 1
    now[0] += QUIET_S
    assert shown(FAILED) == 1, "a failure is told once"


def kind(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, term: str | None) -> type[Display]:
    stream = Terminal()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdout", stream)
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    return type(open_display())


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind(monkeypatch, terminal=True, term="xterm") is Screen
    assert kind(monkeypatch, terminal=True, term="dumb") is Lines
    assert kind(monkeypatch, terminal=True, term=None) is Lines
    assert kind(monkeypatch, terminal=False, term="xterm") is Lines


async def test_a_table_is_drawn_a_few_times_a_second_however_much_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_display, "TABLE_EVERY_S", 0.05)
    terminal = Terminal()
    watched = [Watched("ct200"), Watched("ct201")]
    table = TableScreen(watched, terminal, lambda: (120, 24), coloured=False)
    with table:
        watched[0].take(REPORT)
        table.changed()
        first = terminal.said()
        assert first.startswith(ENTER) and "120/700" in first and "connecting" in first
        assert REPORT.throughput is not None
        for step in range(121, 171):
            watched[0].take(replace(REPORT, throughput=replace(REPORT.throughput, step=step)))
            table.changed()
        assert terminal.said() == "", "not yet"
        await asyncio.sleep(0.2)
        drawn = terminal.said()
        assert drawn.count("\x1b[H") == 1 and "170/700" in drawn
        watched[1].error = "ct201: the connection was refused"
        table.changed()
    left = terminal.said()
    assert LEAVE in left and "ct201: the connection was ref" in left, "what was not drawn yet is there"


async def settled() -> None:
    """A signal has been handled."""
    for _ in range(10):
        await asyncio.sleep(0.001)


async def test_a_window_that_is_too_narrow_for_a_frame_shows_no_line_s_end_in_place_of_what_it_cuts() -> None:
    terminal = Terminal()
    terminal.size = (21, 12)
    with screen(terminal) as display:
        display.show(REPORT)
        drawn = terminal.said().partition("\x1b[H")[2]
        assert "step" in drawn
        for line in drawn.replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n"):
            assert len(line) <= 21, line
        for size in ((1, 1), (2, 40), (400, 2)):
            terminal.size = size
            signal.raise_signal(signal.SIGWINCH)
            await settled()
            assert len(terminal.said().partition("\x1b[H")[2].split("\r\n")) <= size[1]


async def test_what_a_shell_wrote_while_the_watch_was_stopped_is_drawn_over() -> None:
    terminal = Terminal()
    with screen(terminal) as display:
        display.show(REPORT)
        terminal.said()
        signal.raise_signal(signal.SIGCONT)
        await settled()
        drawn = terminal.said()
        assert "step 120/700" in drawn and "\x1b[?25l" in drawn and "\x1b[?1049h" not in drawn
