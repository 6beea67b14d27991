"""What a terminal wrapped, joined again: rows copied from a pane, where one line of the log is several rows.

Rule: a second source. A row that only looks full is joined beside what was read of the rows as they are, never instead;
only a pane that shows itself as one (rows full to a width that panes have, or several of them) is believed more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.probes.rows import Row, joined

COMMON_WIDTHS = frozenset({80, 90, 100, 110, 120, 128, 132, 140, 150, 160, 170, 180, 190, 200, 220, 240, 250, 300})
MIN_WIDTH, MAX_WIDTH = 40, 320
MAX_JOINED = 64
HEAD_CHARS = 12
MANY = 3
GOES_ON = frozenset(":,;)]%")
"""No line begins with one of these."""
_BEGINS = re.compile(
    r"\s*\[?(?:rank ?\d|[EWIF]\d{0,4} |\d{4}-\d\d-\d\d|\d\d:\d\d)"
    r"|Traceback |\s*File \"|\s*(?:[\w .()-]{1,40}: {0,3})?\d{1,3}%\||\s*\{['\"]"
    r"|\s*(?:step|iter(?:ation)?|epoch)\b(?! \(m?s\))"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|Exception |\s*$|\s*[-=~^]{8}"
    r"|\s*(?:During handling|The above exception)|[A-Za-z_][\w.]{2,80}(?:Error|Exception|Warning)\b"
    r"|NCCL |\[\s*\d{1,8}\.\d{6}\]|\(\w",
    re.IGNORECASE,
)
_FRAMES, _FRAME_ENDS = frozenset("|\u2502\u2503\u251c\u2514"), frozenset("|+-=\u2502\u2503\u2524\u2510\u2500\u2501")
_GOES_ON = re.compile(r"\s*iteration \(m?s\)")  # Megatron's row, which begins with `iteration`
_NUMBERS = re.compile(r"[0-9 ]+")
_PADDED = re.compile(
    r"(?<=[^\s|]) {24,}(?=[^\s|])(?!Traceback \()"
)  # not the empty part of a bar, nor IPython's header


@dataclass(frozen=True)
class Pane:
    rows: tuple[Row, ...]
    is_sure: bool


def joined_pane(rows: Sequence[Row]) -> Pane | None:
    """None: nothing looks wrapped."""
    padded = _squeezed(rows)
    if padded is not None:
        return Pane(padded, True)
    widths = [width(row.text) for row in rows]
    full = max(widths, default=0)
    full = next((common for common in (full, full + 1, full + 2) if common in COMMON_WIDTHS), full)
    short = 2 if full in COMMON_WIDTHS else 0
    if not MIN_WIDTH <= full <= MAX_WIDTH:
        return None
    if all(
        not full - short <= widths[number] <= full or _begins_anew(rows[number].text, rows[number + 1].text)
        for number in range(len(rows) - 1)
    ):
        return None
    together: list[list[Row]] = []
    heads: set[str] = set()
    joins: list[int] = []
    goes_on = False
    open_ended = False
    for number, (row, row_width) in enumerate(zip(rows, widths, strict=True)):
        goes_on_here = open_ended and len(together[-1]) < MAX_JOINED and _shape(row.text) not in heads
        if goes_on_here and not _begins_anew(together[-1][-1].text, row.text):
            together[-1].append(row)  # what was cut at a blank has lost it
            joins.append(widths[number - 1])
            goes_on = goes_on or row.text[:1] in GOES_ON
        else:
            together.append([row])
            if len(row.text) >= HEAD_CHARS:
                heads.add(_shape(row.text))
        open_ended = full - short <= row_width <= full
        if open_ended and row_width < full:
            together[-1][-1] = _filled_up(row, full - row_width)
    if not joins:
        return None
    # a terminal cuts at its width; one row that ends a blank or two before it may just be so long
    is_cut = full in joins or len(joins) >= MANY or goes_on
    is_sure = is_cut and (full in COMMON_WIDTHS or len(joins) > 1)
    return Pane(tuple([joined(each) for each in together]), is_sure)


def _shape(text: str) -> str:
    """Of how it begins: rows that one writer begins differ in their digits only."""
    return _NUMBERS.sub("0", text[:HEAD_CHARS]) if len(text) >= HEAD_CHARS else text


def _filled_up(row: Row, columns: int) -> Row:
    end = row.span().end - 1
    places = row.places if row.places is not None else range(row.start, row.start + len(row.text))
    return Row(row.text + " " * columns, row.start, [*places, *[max(row.start, end)] * columns])


def _begins_anew(row: str, following: str) -> bool:
    if _BEGINS.match(following) is not None or row.rstrip(":").endswith("(most recent call last)"):
        return True
    if following.lstrip()[:1] in _FRAMES and row.rstrip()[-1:] in _FRAME_ENDS:
        return True  # rows of a table, as wide as each other
    if _GOES_ON.match(following) is not None or not row[:6].strip():
        return False
    return row[:6] == following[:6] or (len(row) >= HEAD_CHARS and _shape(row) == _shape(following))


def _squeezed(rows: Sequence[Row]) -> tuple[Row, ...] | None:
    """Rows copied from a screen wider than their text: the blanks that fill it up stand in the middle of a word."""
    if not any(" " * 24 in row.text and _PADDED.search(row.text) for row in rows):
        return None
    return tuple([_without_padding(row) for row in rows])


def _without_padding(row: Row) -> Row:
    parts, at = [], 0
    for found in _PADDED.finditer(row.text):
        parts.append(row.cut(at, found.start()))
        at = found.end()
    return joined([*parts, row.cut(at)]) if parts else row


def width(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
