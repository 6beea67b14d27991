"""PURE: text that fits into a number of terminal columns.

Rule: no column more than asked for, and a number is shown whole or not at all. What was left out is shown as `…`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

CUT = "…"
_NUMBER = set("0123456789.,:/+-%")


def text_width(text: str) -> int:
    """Columns that a terminal uses for it. Control characters must be out already; a tab counts as one."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


@lru_cache(maxsize=4096)
def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, width: int) -> str:
    """At most `width` columns, `…` in place of what does not fit."""
    if text_width(text) <= width:
        return text
    if width <= 0:
        return ""
    kept = _within(text, width - 1)
    if text[kept] in _NUMBER:
        kept = _before_number(text, kept)
    shown = text[:kept].rstrip()
    if shown and shown[-1].isdigit():  # `12…` would look like a number that goes on
        if text_width(shown) + 2 <= width:
            return f"{shown} {CUT}"
        shown = text[: _before_number(text, len(shown))].rstrip()
    return shown + CUT


def _before_number(text: str, end: int) -> int:
    """Where what is written as a number up to `end` begins; `end` when nothing is."""
    begin = end
    while begin and text[begin - 1] in _NUMBER:
        begin -= 1
    return begin if any(char.isdigit() for char in text[begin:end]) else end


def fold(text: str, width: int) -> list[str]:
    """All of it, in as many lines as it takes; at blanks where there are some in the later half of a line."""
    lines = []
    while text_width(text) > width:
        end = max(1, _within(text, width))
        blank = text.rfind(" ", end // 2, end)
        cut = blank if blank > 0 and text[:blank].strip() else end
        lines.append(text[:cut].rstrip() or text[:cut])
        text = text[cut:].lstrip(" ") if cut == blank else text[cut:]
    return [*lines, text]


def pack(parts: Sequence[str], width: int, between: str = ", ") -> list[str]:
    """As many lines as the parts need, none of them broken; one that is too long by itself is clipped."""
    lines: list[str] = []
    for part in parts:
        if lines and text_width(lines[-1]) + text_width(between) + text_width(part) <= width:
            lines[-1] += between + part
        else:
            lines.append(clip(part, width))
    return lines


def _within(text: str, width: int) -> int:
    """How many characters take at most `width` columns."""
    if text.isascii():
        return min(len(text), width)
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return index
    return len(text)
