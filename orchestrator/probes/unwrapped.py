"""A table of commas whose rows a terminal cut at its width: read again with the rows joined, each value at its place.

Rule: a second try. It counts only where the rows as they are do not fit their columns and the joined ones all do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from orchestrator.probes.pane import COMMON_WIDTHS
from orchestrator.probes.spans import Located, Span, Value

_Reading = TypeVar("_Reading", bound=Located)
MAX_CHARACTERS = 256 * 1024
_LOST_BLANKS = 2
"""So many at a row's end a copy leaves out."""


def read_unwrapped(text: str, read: Callable[[str], _Reading], is_whole: Callable[[_Reading], bool]) -> _Reading | None:
    """None: nothing looks cut, or joining does not help."""
    lines = text.split("\n")
    longest = max(len(line.rstrip("\r")) for line in lines)
    width = next((longest + lost for lost in range(_LOST_BLANKS + 1) if longest + lost in COMMON_WIDTHS), None)
    if width is None or len(text) > MAX_CHARACTERS:
        return None
    letters: list[str] = []
    places: list[int] = []
    start = 0
    for number, line in enumerate(lines):
        said = line.rstrip("\r")
        letters.append(said)
        places += range(start, start + len(said))
        start += len(line) + 1
        if number + 1 == len(lines):
            break
        if width - _LOST_BLANKS <= len(said) <= width and lines[number + 1].strip():
            letters.append(" " * (width - len(said)))
            places += [max(start - 2, 0)] * (width - len(said))
        else:
            letters.append("\n")
            places.append(start - 1)
    reading = read("".join(letters))
    return _moved(reading, places) if is_whole(reading) else None


def _moved(fact: Any, places: Sequence[int]) -> Any:
    """Each span of it where its characters stood before."""
    if isinstance(fact, Value):
        return Value(fact.value, _place(fact.span, places))
    if isinstance(fact, Mapping):
        return {name: _moved(value, places) for name, value in fact.items()}
    if isinstance(fact, tuple):
        return tuple(_moved(item, places) for item in fact)
    if isinstance(fact, Located):
        fields = (field.name for field in dataclasses.fields(fact) if field.name != "spans")
        spans = {name: _place(span, places) for name, span in fact.spans.items()}
        return dataclasses.replace(fact, **{name: _moved(getattr(fact, name), places) for name in fields}, spans=spans)
    return fact


def _place(span: Span, places: Sequence[int]) -> Span:
    if span.start >= span.end:
        start = places[span.start] if span.start < len(places) else places[-1] + 1
        return Span(start, start)
    return Span(places[span.start], places[span.end - 1] + 1)
