"""Which failures a text tells of, one after the other, by the signs of one program. PURE.

Rule: one failure has several lines, and the most telling one (the first of the signs) names its kind. A new failure
begins where another subject (a host, a container) is named, or where the same sign says something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_MARKS = 20_000
Named = dict[str, tuple[str, int, int]]
"""What the text names: name -> (words, where they begin, where they end)."""


@dataclass(frozen=True)
class Told:
    kind: str
    start: int
    end: int
    """Of the words that decided the kind."""
    named: Named = field(default_factory=dict)
    times: int = 1
    """How often those words stand there."""


@dataclass
class _Failure:
    subject: Named
    marks: list[tuple[int, str, re.Match[str]]] = field(default_factory=list)
    said: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)


def read_failures(
    text: str,
    signs: Sequence[tuple[str, re.Pattern[str]]],
    subjects: re.Pattern[str],
    details: Sequence[re.Pattern[str]] = (),
) -> tuple[Told, ...]:
    """subjects: alternatives that name who is spoken of; a group's name, without a number behind it, is a fact's."""
    marks = sorted(_marks(text, signs), key=lambda mark: (mark[2].start(), mark[0]))[:MAX_MARKS]
    failures = list(_grouped(text, marks, list(subjects.finditer(text))))
    ends = [*(failure.marks[0][2].start() for failure in failures[1:]), len(text)]
    return tuple(_told(text, failure, ends[number], details) for number, failure in enumerate(failures))


def _marks(text: str, signs: Sequence[tuple[str, re.Pattern[str]]]) -> Iterator[tuple[int, str, re.Match[str]]]:
    for rank, (kind, pattern) in enumerate(signs):
        for number, found in enumerate(pattern.finditer(text)):
            if number == MAX_MARKS:
                break
            yield rank, kind, found


def _grouped(
    text: str, marks: Sequence[tuple[int, str, re.Match[str]]], subjects: Sequence[re.Match[str]]
) -> Iterator[_Failure]:
    current: _Failure | None = None
    at, latest = 0, None  # the subject that was named last, and not used yet
    for rank, kind, mark in marks:
        line_end = text.find("\n", mark.end())
        line_end = len(text) if line_end < 0 else line_end
        while at < len(subjects) and subjects[at].start() < line_end:
            latest, at = subjects[at], at + 1
        subject = _named(latest) if latest is not None else {}
        latest = None
        said = {name: word[0] for name, word in _named(mark).items()}
        if current is None or _is_another(current, subject, rank, kind, said):
            if current is not None:
                yield current
            current = _Failure(subject)
        current.subject = {**subject, **current.subject}
        current.marks.append((rank, kind, mark))
        current.said[(rank, kind)] = {**current.said.get((rank, kind), {}), **said}
    if current is not None:
        yield current


def _is_another(current: _Failure, subject: Named, rank: int, kind: str, said: dict[str, str]) -> bool:
    differs = any(name in current.subject and current.subject[name][0] != word[0] for name, word in subject.items())
    before = current.said.get((rank, kind), {})
    return differs or any(before.get(name, word) != word for name, word in said.items())


def _told(text: str, failure: _Failure, end: int, details: Sequence[re.Pattern[str]]) -> Told:
    rank, kind, mark = min(failure.marks, key=lambda one: one[0])
    times = sum(other == rank and found.group() == mark.group() for other, _, found in failure.marks)
    named = {**failure.subject, **_named(mark)}
    begin = text.rfind("\n", 0, failure.marks[0][2].start()) + 1
    for pattern in details:
        found = pattern.search(text, begin, end)
        if found is not None:
            named = {**_named(found), **named}
    return Told(kind, mark.start(), mark.end(), named, times)


def _named(found: re.Match[str]) -> Named:
    return {
        name.rstrip("0123456789"): (value, found.start(name), found.end(name))
        for name, value in found.groupdict().items()
        if value
    }
