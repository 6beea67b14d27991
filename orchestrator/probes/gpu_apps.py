"""`nvidia-smi --query-compute-apps=... --format=csv`: which processes compute on which GPU.

Rule: nvidia-smi quotes nothing, so a name may hold commas and quotes: it is what is left between its neighbours. A
list with nothing but its header is an answer (nobody computes); a text without header, rows or that sentence is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu_csv import BY_FORM, MAX_LINE, Column, has_broken_rows, header_columns, monitor_columns
from orchestrator.probes.gpu_trouble import details_in, is_prompt, trouble_in, with_details
from orchestrator.probes.gpu_values import COLUMNS, NotAValue, is_absent, lacks_unit, value_of
from orchestrator.probes.spans import NO_SPANS, Located, Piece, Span, Value, said_lines

FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")

_MONITOR = {"command": "process_name", "fb": "used_memory"}
"""What nvidia-smi pmon calls its columns."""
_NAMES = ("process_name", "name")
_MEMORY = ("used_memory", "used_gpu_memory")
_WORD = re.compile(r"\S+")
_PID = re.compile(r"[0-9]{1,10}")
_NOBODYS_ROW = re.compile(r"\d{1,3} +- +- ")
"""Of pmon: a GPU without processes."""
_NOBODY = re.compile(r"No running (?:compute )?processes found", re.IGNORECASE)


@dataclass(frozen=True)
class AppRow(Located):
    pid: int
    """The host's number, wherever it was asked."""
    name: str | None = None
    used_mib: int | None = None
    """None: not told (Windows, some containers); never 0 for that."""
    gpu_uuid: str | None = None
    gpu_name: str | None = None
    bus: str | None = None
    serial: str | None = None
    other: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class AppsReading(Located):
    answered: bool | None
    """False: an error instead of a list. None: neither was seen."""
    processes: tuple[AppRow, ...]
    columns: tuple[str, ...] | None = None
    """As a header names them."""
    findings: tuple[Finding, ...] = ()


def read_apps(text: str, fields: Sequence[str] | None = None) -> AppsReading:
    """fields: the columns that were asked for, for output without a header; without either, by their forms."""
    reading = _read(text, fields)
    if has_broken_rows(reading.findings):
        from orchestrator.probes.unwrapped import read_unwrapped  # `orch read` only

        again = read_unwrapped(
            text,
            lambda joined: _read(joined, fields),
            lambda one: bool(one.processes) and not has_broken_rows(one.findings),
        )
        reading = reading if again is None else again
    return reading


def _read(text: str, fields: Sequence[str] | None) -> AppsReading:
    reader = _Reader(fields)
    for line in said_lines(text):
        reader.take(line.strip(), cut=line.span.end == len(text))
    return reader.answer()


class _Reader:
    def __init__(self, fields: Sequence[str] | None) -> None:
        self._columns = None if fields is None else [Column(name.strip()) for name in fields]
        self._header: Span | None = None
        self._rows: list[AppRow] = []
        self._findings: list[Finding] = []
        self._details: dict[str, Value] = {}
        self._answer: tuple[bool, Span] | None = None
        self._monitor = False
        """Columns are those of pmon, apart by blanks."""
        self._units = False

    def take(self, line: Piece, *, cut: bool) -> None:
        if is_prompt(line):
            return
        if columns := header_columns(line) if len(line.text) <= MAX_LINE else None:
            self._columns, self._header, self._monitor = columns, line.span, False
            self._answered(True, line)
        elif (names := monitor_columns(line)) is not None:
            if "pid" in names:
                self._columns, self._header = [Column(_MONITOR.get(name, name), said=name) for name in names], line.span
                self._monitor = True
                self._answered(True, line)
        elif self._monitor and _NOBODYS_ROW.match(line.text):
            return
        elif _NOBODY.search(line.text[:MAX_LINE]):
            self._answered(True, line)
        elif (row := self._row(line, cut)) is not None:
            self._rows.append(row)
            self._answered(True, line)
        elif trouble := trouble_in(line):
            self._findings.append(trouble)
            self._answered(False, line)
        elif details := details_in(line):
            self._details = {**details, **self._details}
        else:
            self._findings.append(finding_at(line, "truncated_row" if cut else "malformed_row"))

    def _answered(self, told: bool, line: Piece) -> None:
        if self._answer is None or not told:
            self._answer = (told, line.span)

    def _row(self, line: Piece, cut: bool) -> AppRow | None:
        cells: list[Piece] = []
        if self._monitor and self._columns and "," not in line.text.split("  ")[0]:
            words = list(_WORD.finditer(line.text))
            begins = [word.start() for word in words[: len(self._columns)]]
            ends = [word.end() for word in words[: len(self._columns) - 1]] + [len(line.text)]
            cells = [line.cut(begin, end).strip() for begin, end in zip(begins, ends, strict=False)]
        elif len(line.text) <= MAX_LINE:
            cells = [cell.strip() for cell in line.split(",")]
        columns = self._columns or _columns_by_form(cells)
        joined = columns and _with_name_joined(columns, cells, line)
        if not joined:
            return None
        try:
            return self._filled(columns, joined, cut)
        except NotAValue:
            return None

    def _filled(self, columns: Sequence[Column], cells: Sequence[Piece], cut: bool) -> AppRow | None:
        values: dict[str, Any] = {}
        spans: dict[str, Span] = {}
        other: dict[str, Value] = {}
        for column, cell in zip(columns, cells, strict=True):
            name = column.name or ""
            text = cell.text
            if name == "pid":
                if not _PID.fullmatch(text):
                    return None
                values["pid"], spans["pid"] = int(text), cell.span
            elif name in _NAMES:
                values["name"], spans["name"] = (None if is_absent(text) else text), cell.span
            elif name in _MEMORY:
                value = value_of("mib", text, column.unit)
                if cut and cell is cells[-1] and self._units and value is not None and lacks_unit(text):
                    return None  # its unit is missing, and with it perhaps digits
                self._units = self._units or (value is not None and not lacks_unit(text))
                values["used_mib"], spans["used_mib"] = value, cell.span
            elif target := _FIELDS.get(COLUMNS.get(name, ("", ""))[0]):
                values[target], spans[target] = (None if is_absent(text) else text), cell.span
            else:
                other[name] = Value(None if is_absent(text) else text, cell.span)
        return AppRow(**values, other=other, spans=spans) if "pid" in values else None

    def answer(self) -> AppsReading:
        columns = (
            None if self._header is None else tuple(column.said or column.name or "" for column in self._columns or ())
        )
        spans = dict(NO_SPANS)
        if self._header is not None:
            spans["columns"] = self._header
        if self._answer is not None:
            spans["answered"] = self._answer[1]
        told = None if self._answer is None else self._answer[0]
        return AppsReading(told, tuple(self._rows), columns, with_details(self._findings, self._details), spans=spans)


# Field of GpuFact that a column of the GPU has -> field here.
_FIELDS = {"uuid": "gpu_uuid", "name": "gpu_name", "bus": "bus", "serial": "serial"}


def _with_name_joined(columns: Sequence[Column], cells: list[Piece], line: Piece) -> list[Piece] | None:
    """As many cells as columns: the name takes what is too much."""
    extra = len(cells) - len(columns)
    place = next((number for number, column in enumerate(columns) if column.name in _NAMES), None)
    if extra == 0:
        return cells
    if extra < 0 or place is None:
        return None
    first, last = cells[place], cells[place + extra]
    name = line.cut(first.start - line.start, last.start + len(last.text) - line.start)
    return [*cells[:place], name, *cells[place + extra + 1 :]]


def _columns_by_form(cells: Sequence[Piece]) -> list[Column]:
    """Nobody named them: what identifies a GPU, the first bare number is the pid, the last value the memory when it is
    one, and what stands between those is the name. Empty: it is no such row."""
    columns: list[Column] = []
    for cell in cells:
        if _PID.fullmatch(cell.text):
            break
        form = next((name for name, pattern in BY_FORM if pattern.fullmatch(cell.text)), None)
        names = {"uuid": "gpu_uuid", "bus": "gpu_bus_id", "name": "gpu_name", None: "timestamp"}
        columns.append(Column(names[form]))
        if len(columns) > 5:
            return []
    else:
        return []
    columns.append(Column("pid"))
    rest = list(cells[len(columns) :])
    memory = bool(rest) and _is_memory(rest[-1].text)
    if len(rest) > memory:
        columns.append(Column("process_name"))
    return [*columns, Column("used_memory")] if memory else columns


def _is_memory(text: str) -> bool:
    try:
        value_of("mib", text)
    except NotAValue:
        return False
    return True
