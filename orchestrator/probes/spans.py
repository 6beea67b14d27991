"""Where in a captured text a value was read.

Rule: offsets count characters of the text that was given to the reader, end exclusive. A reader that rewrites its input
before it looks (escapes, wraps, clock prefixes) keeps every character's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


@dataclass(frozen=True, order=True)
class Span:
    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    @staticmethod
    def over(spans: Iterable[Span]) -> Span:
        """From the first's start to the last's end. Raises ValueError when there are none."""
        places = list(spans)
        return Span(min(place.start for place in places), max(place.end for place in places))


@dataclass(frozen=True)
class Value:
    """One value and where it stands; for what has no field of its own (a column, a thing that an error names)."""

    value: str | int | float | bool | None
    """None: the text says that there is none (`[N/A]`)."""
    span: Span


Spans = Mapping[str, Span]
"""Field name of the fact that holds it -> where its value stands. A field of None that is named here was said to be
absent; one that is not named was not spoken of."""

NO_SPANS: Spans = MappingProxyType({})
OWN_WORDS = {"own_words": True}
"""Metadata of a field that is ours (a remedy, a sentence), so that it stands nowhere in the input."""


@dataclass(frozen=True, kw_only=True)
class Located:
    """Base of a fact that was read from a text, or could have been. Two are equal wherever they were read."""

    spans: Spans = field(default_factory=lambda: NO_SPANS, compare=False, repr=False)


class Piece(NamedTuple):
    """A part of a text that knows its place there. (A tuple: there may be a million of them.)"""

    text: str
    start: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.start + len(self.text))

    def cut(self, start: int, end: int) -> Piece:
        """Both count from this piece's begin."""
        return Piece(self.text[start:end], self.start + start)

    def place(self, found: re.Match[str], group: str | int = 0) -> Span:
        """Of what a pattern found in this piece's text."""
        start, end = found.span(group)
        return Span(self.start + start, self.start + end)

    def strip(self) -> Piece:
        stripped = self.text.strip()
        lead = len(self.text) - len(self.text.lstrip())
        return Piece(stripped, self.start + (lead if stripped else 0))

    def split(self, separator: str) -> list[Piece]:
        pieces, start = [], self.start
        for part in self.text.split(separator):
            pieces.append(Piece(part, start))
            start += len(part) + len(separator)
        return pieces


def lines_of(text: str) -> list[Piece]:
    """Without their ends: a newline, with any carriage return before it."""
    pieces, start = [], 0
    for line in text.split("\n"):
        pieces.append(Piece(line.rstrip("\r"), start))
        start += len(line) + 1
    return pieces


def said_lines(text: str) -> list[Piece]:
    """Those of them that are not blank, without the mark that Windows writes in front of a text."""
    start = int(text.startswith("\ufeff"))
    pieces = []
    for line in text[start:].split("\n"):
        if line and not line.isspace():
            pieces.append(Piece(line.rstrip("\r"), start))
        start += len(line) + 1
    return pieces
