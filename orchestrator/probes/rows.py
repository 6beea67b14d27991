"""The rows of a log: without control sequences, without what a launcher put in front of them, each character's place
in the input kept.

Rule: a row is what one writer meant as one line. `\\r` ends one as `\\n` does, and so does a progress bar that
something else was printed behind.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orchestrator.probes.spans import Span
from orchestrator.probes.text import CONTROL, SEQUENCE, SURROGATE

MAX_ROW_CHARS = 16 * 1024
"""A longer line is read in pieces: no expression sees more at once."""


PASTED_BLANKS = 4


@dataclass(frozen=True, slots=True)
class Row:
    text: str
    start: int
    places: Sequence[int] | None = None
    """Where each character stands in the input, when that is not start, start + 1, ..."""

    def span(self, begin: int = 0, end: int | None = None) -> Span:
        """Of text[begin:end], in the input."""
        end = len(self.text) if end is None else end
        if self.places is None or not self.text:
            return Span(self.start + begin, self.start + end)
        if begin >= end:
            place = self.places[min(begin, len(self.text) - 1)]
            return Span(place, place)
        return Span(self.places[begin], self.places[end - 1] + 1)

    def cut(self, begin: int, end: int | None = None) -> Row:
        text = self.text[begin:end]
        if self.places is None:
            return Row(text, self.start + begin)
        places = self.places[begin:end]
        return Row(text, places[0] if places else self.start, places)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a row, as its launcher put it in front."""

    stream: str = ""
    """Rows of one writer have the same; "" when nothing is in front."""
    rank: int | None = None
    pid: int | None = None
    is_stamped: bool = False
    """A time or a level of a logger stands in front."""
    rank_at: Span | None = field(default=None, compare=False)
    pid_at: Span | None = field(default=None, compare=False)
    """Where the two stand in the input."""


@dataclass(frozen=True, slots=True)
class Told:
    """A row and its writer."""

    row: Row
    origin: Origin

    @property
    def text(self) -> str:
        return self.row.text


_WRITERS = re.compile(
    r"\[(?:rank|default|Rank )(?P<rank>\d{1,6})\]:? ?"
    r"|\((?P<name>[A-Za-z_][\w.:-]{0,60})(?P<facts>(?: [\w-]{1,20}=[^\s),]{1,60},?){0,6})\) ?"
    r"|(?:stdout|stderr): ?(?=\S)"
    r"|(?:stdout|stderr) [FP] "  # a container's log under Kubernetes, behind its time
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} (?!kernel)[\w./-]{1,64}\[(?P<pid>\d{1,9})\]: ?"  # journald
    r"|\[\d{1,4},(?P<mpi>\d{1,6})\](?:<std(?:err|out)>)?: ?"
    r"|(?P<srun>\d{1,5}): (?=\S|  )"
    r"|(?P<host>[a-z][a-z.-]{0,60}-?\d{1,4}(?:\.[a-z][a-z0-9.-]{0,60})?): (?=\S| {2})"
    r"|(?P<compose>[a-z][\w.-]{0,60}?[-_]\d{1,3}) {1,20}\| ?"
)
_STAMPS = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z|[+-]\d\d:?\d\d)?\]?:? ?"
    r"|(?:\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?[: ] {0,8})(?:\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})? )?"
    r"\[[\w./-]{1,120}:\d{1,6}(?::\w{1,60})?\] ?"
    r"|- [\w.<>-]{1,80} - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ?"  # logging's usual format, behind its time
)
_FACT = re.compile(r"(?P<name>rank|pid)=(?P<value>\d{1,9})\b")
_TAKEN_OUT = re.compile(f"{SEQUENCE.pattern}|{CONTROL.pattern}+")
_ESCAPED = re.compile(r"\\{1,2}[nrt\"'\\/]")
_NO_ORIGIN = Origin()
_BAR_END = re.compile(
    r"\d{1,3}%\|[^|]{0,400}\| {0,8}\d{1,15}/\d{1,15} {0,4}\[[^\]\r\n]{0,240}\]"
    r"|\] \d{1,15}/\d{1,15}, [\d.]{1,12} task/s, elapsed: \d{1,9}s, ETA: {0,8}\d{1,9}s"
)


def rows_of(text: str) -> list[Row]:
    """Of every state of an overwritten line one; empty ones too. Surrogates (bytes that were no UTF-8) are U+FFFD."""
    rows: list[Row] = []
    start = 0
    for line in text.split("\n"):
        if "\r" in line:
            state_start = start
            for state in line.split("\r"):
                if state:
                    _add(rows, state, state_start)
                state_start += len(state) + 1
        else:
            _add(rows, line, start)
        start += len(line) + 1
    return rows


def _add(rows: list[Row], line: str, start: int) -> None:
    if len(line) > MAX_ROW_CHARS:
        for begin in range(0, len(line), MAX_ROW_CHARS):
            rows.append(plain_row(line[begin : begin + MAX_ROW_CHARS], start + begin))
    else:
        rows.append(plain_row(line, start))


def plain_row(line: str, start: int) -> Row:
    if line.isascii() and line.isprintable():
        return Row(line, start)
    if CONTROL.search(line) is None and "\x1b" not in line:
        return Row(SURROGATE.sub("\ufffd", line), start)
    kept: list[tuple[int, int]] = []
    at = 0
    for found in _TAKEN_OUT.finditer(line):
        kept.append((at, found.start()))
        at = found.end()
    kept.append((at, len(line)))
    places = [place for begin, end in kept for place in range(begin, end)]
    text = "".join([line[begin:end] for begin, end in kept])
    return Row(SURROGATE.sub("\ufffd", text), start, [start + place for place in places])


def told_rows(rows: Iterable[Row]) -> list[Told]:
    """Bars and what was printed behind them apart, and what a launcher put in front taken off."""
    told: list[Told] = []
    for row in outdented(list(rows)):
        for line in _written_in_one(row):
            for part in _behind_bars(line):
                told.append(peeled(part))
    return told


def outdented(rows: list[Row]) -> list[Row]:
    """Pasted as a block of code, or quoted: without what stands in front of all. A stack alone is indented by two."""
    said = [row.text for row in rows if row.text.strip()]
    if len(said) > 1 and all(text.startswith("> ") or text == ">" for text in said):
        return [row.cut(2) for row in rows]
    blanks = min((len(text) - len(text.lstrip()) for text in said), default=0)
    if blanks < PASTED_BLANKS or len(said) < 2:
        return rows
    return [row.cut(blanks) if row.text.strip() else row for row in rows]


def _written_in_one(row: Row) -> list[Row]:
    """A traceback that a logger wrote as one line, as in JSON: its rows."""
    if "\\n" not in row.text or "Traceback (most recent" not in row.text:
        return [row]
    rows, begin = [], 0
    for found in _ESCAPED.finditer(row.text):
        if found[0].endswith("n"):
            rows.append(_unquoted(row.cut(begin, found.start())))
            begin = found.end()
    first = rows[0].text.find("Traceback (most recent")
    if first > 0:
        rows[:1] = [rows[0].cut(0, first), rows[0].cut(first)]
    return [*rows, _unquoted(row.cut(begin))]


def _unquoted(row: Row) -> Row:
    if "\\" not in row.text:
        return row
    kept = [(0, 0), *(found.span() for found in _ESCAPED.finditer(row.text)), (len(row.text), len(row.text))]
    places: list[int] = []
    texts: list[str] = []
    for (_, begin), (end, behind) in itertools.pairwise(kept):
        last = row.text[behind - 1 : behind] if behind > end and row.text[behind - 1] in "\"'\\/" else ""
        at = [*range(begin, end), *([behind - 1] if last else [])]
        texts.append(row.text[begin:end] + last)
        places += [row.start + place if row.places is None else row.places[place] for place in at]
    return Row("".join(texts), places[0] if places else row.start, places)


def _behind_bars(row: Row) -> list[Row]:
    if "]" not in row.text and "ETA" not in row.text:
        return [row]
    parts, at = [], 0
    for found in _BAR_END.finditer(row.text):
        behind = row.text[found.end() : found.end() + 1]
        if behind and behind not in " ,:":
            parts.append(row.cut(at, found.end()))
            at = found.end()
        elif behind and not row.text[found.end() :].strip():
            break
    return [*parts, row.cut(at)] if parts else [row]


def peeled(row: Row) -> Told:
    text, at = row.text, 0
    stream: list[str] = []
    facts: dict[str, tuple[int, Span]] = {}
    is_stamped = False
    for _ in range(5):
        found = _WRITERS.match(text, at)
        if found is not None:
            stream.append(found[0].rstrip())
            number = next((name for name in ("rank", "mpi", "srun") if found[name]), None)
            if number is not None:
                facts["rank"] = (int(found[number]), row.span(*found.span(number)))
            if found["pid"]:
                facts["pid"] = (int(found["pid"]), row.span(*found.span("pid")))
            for fact in _FACT.finditer(text, *found.span("facts")) if found["facts"] else ():
                facts[fact["name"]] = (int(fact["value"]), row.span(*fact.span("value")))
        else:
            found = _STAMPS.match(text, at)
            if found is None:
                break
            is_stamped = True
        at = found.end()
    if not at:
        return Told(row, _NO_ORIGIN)
    rank, rank_at = facts.get("rank", (None, None))
    pid, pid_at = facts.get("pid", (None, None))
    return Told(row.cut(at), Origin("".join(stream), rank, pid, is_stamped, rank_at, pid_at))


def moved(rows: list[Row], start: int) -> list[Row]:
    """As rows of a text that begins at `start`."""
    if not start:
        return rows
    return [
        Row(row.text, row.start + start, None if row.places is None else [place + start for place in row.places])
        for row in rows
    ]


def joined(rows: Sequence[Row], between: str = "") -> Row:
    """As if they were one; `between` stands where each ends."""
    if len(rows) == 1:
        return rows[0]
    texts: list[str] = []
    places: list[int] = []
    for number, row in enumerate(rows):
        if number and between:
            texts.append(between)
            places += [places[-1] if places else row.start] * len(between)
        texts.append(row.text)
        places += row.places if row.places is not None else range(row.start, row.start + len(row.text))
    return Row("".join(texts), places[0] if places else rows[0].start, places)
