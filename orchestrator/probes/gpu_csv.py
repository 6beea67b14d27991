"""`nvidia-smi --query-gpu=... --format=csv`, in any order of columns, with or without header and units.

Rule: a row has exactly the columns that were asked for, each a value of its column's form or one of the known ways to
say that there is none; anything else is no row, and is told. Nothing is shifted, nothing is guessed: without a header
and without the asker's word a number has no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu import FIELDS, GpuFact
from orchestrator.probes.gpu_trouble import ACTIONS, RESET, details_in, is_prompt, trouble_in, with_details
from orchestrator.probes.gpu_values import (
    COLUMNS,
    WITH_UNITS,
    Form,
    NotAValue,
    fault_in,
    is_absent,
    lacks_unit,
    value_of,
)
from orchestrator.probes.spans import NO_SPANS, Located, Piece, Span, Value, said_lines

MONITOR: dict[str, str] = {
    "gpu": "index",
    "pwr": "power.draw",
    "temp": "temperature.gpu",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "mclk": "clocks.mem",
    "pclk": "clocks.sm",
    "fb": "memory.used",
}
"""What nvidia-smi dmon calls its columns."""
FAULTY = "gpu_faulty"
"""A row with a GPU that the driver cannot use; the row itself is one."""
MAX_LINE = 64 * 1024
_HEADER_CELL = re.compile(r"(?P<name>[a-z][a-z0-9_.]{0,80})(?: \[(?P<unit>[^\]]{1,20})\])?")
_MORE_COLUMNS = {"timestamp", "count", "pid", "process_name", "display_mode", "persistence_mode", "driver_name"}
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)(?: (?:[A-Za-z]{1,3}|%))?")
BY_FORM = (
    ("uuid", re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+")),
    ("bus", re.compile(r"(?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]")),
    ("name", re.compile(r"(?:NVIDIA|GeForce|Tesla|Quadro|GRID|TITAN) \S.{0,80}|Tesla|NVIDIA")),
)


_LISTED = re.compile(  # nvidia-smi -L
    r"^GPU (?P<index>[0-9]{1,3}): (?P<name>[A-Z][^(|]{1,60}?) \(UUID: (?P<uuid>GPU-[0-9a-fA-F-]{8,64})\)"
)
_LISTED_SLICE = re.compile(r"MIG \S{1,40} +Device +\d{1,3}: \(UUID: MIG-")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class GpuRow(GpuFact, Located):
    """A GPU as a captured text tells of it: also what status has no use for."""

    serial: str | None = None
    driver_version: str | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_temperature_c: int | None = None
    fan_percent: int | None = None
    power_instant_w: float | None = None
    """Where an average is told too."""
    graphics_clock_mhz: int | None = None
    ecc: bool | None = None
    compute_mode: str | None = None
    recovery_action: str | None = None
    """What the driver wants done: Reset, Reboot, Drain P2P, ..."""
    other: Mapping[str, Value] = field(default_factory=dict)
    """Columns that have no field here, by the name they were asked for; `column N` where that is not known."""

    def fact(self) -> GpuFact:
        return GpuFact(**{item.name: getattr(self, item.name) for item in fields(GpuFact)})


@dataclass(frozen=True)
class GpuReading(Located):
    gpus: tuple[GpuRow, ...]
    columns: tuple[str, ...] | None = None
    """As a header names them."""
    findings: tuple[Finding, ...] = ()
    """Lines that are no row (error sentences come on stdout too, wrong number of values), and GPUs that are faulty."""


@dataclass(frozen=True)
class GpuAnswer:
    gpus: tuple[GpuFact, ...]
    rejected: tuple[str, ...]
    """Lines that are no row."""


@dataclass(frozen=True)
class Column:
    name: str | None
    """None: nobody named it."""
    unit: str | None = None
    said: str | None = None
    """What the header calls it, where that is another name."""


def parse_gpu_csv(text: str) -> GpuAnswer:
    """The answer to `QUESTION`."""
    reading = _read(text, FIELDS)
    rejected = tuple(finding.said for finding in reading.findings if finding.kind != FAULTY)
    return GpuAnswer(tuple(row.fact() for row in reading.gpus), rejected)


def read_gpu_csv(text: str, fields: Sequence[str] | None = None) -> GpuReading:
    """fields: the columns that were asked for, for output without a header; a header in the text has the last word."""
    reading = _read(text, fields)
    if has_broken_rows(reading.findings):
        from orchestrator.probes.unwrapped import read_unwrapped  # `orch read` only

        again = read_unwrapped(
            text, lambda joined: _read(joined, fields), lambda one: bool(one.gpus) and not has_broken_rows(one.findings)
        )
        reading = reading if again is None else again
    return reading


def has_broken_rows(findings: Sequence[Finding]) -> bool:
    return any(finding.kind in ("malformed_row", "truncated_row") for finding in findings)


def _read(text: str, fields: Sequence[str] | None) -> GpuReading:
    reader = _Reader(fields)
    for line in said_lines(text):
        reader.take(line, cut=line.span.end == len(text))
    return reader.answer()


def header_columns(line: Piece) -> list[Column] | None:
    """None: it is no header."""
    found = [_HEADER_CELL.fullmatch(unquoted(cell.strip()).text) for cell in line.split(",")]
    columns = [Column(cell["name"], cell["unit"]) for cell in found if cell]
    known = any(column.name in COLUMNS or column.name in _MORE_COLUMNS for column in columns)
    return columns if len(columns) == len(found) and known else None


def monitor_columns(line: Piece) -> list[str] | None:
    """Of dmon and pmon, which tell them in two lines: their names, or [] for the one with the units."""
    if not line.text.startswith("#"):
        return None
    words = line.text[1:].split()
    if "gpu" in words:
        return words
    return [] if "Idx" in words else None


def listed_gpu(line: Piece) -> GpuRow | None:
    """A line of `nvidia-smi -L`."""
    row = _LISTED.search(line.text)
    if row is None:
        return None
    places = {group: line.place(row, group) for group in ("index", "name", "uuid")}
    return GpuRow(int(row["index"]), row["name"], None, None, uuid=row["uuid"], spans=places)


class _Reader:
    def __init__(self, fields: Sequence[str] | None) -> None:
        self._columns = None if fields is None else [Column(name.strip()) for name in fields]
        self._header: Span | None = None
        self._gpus: list[GpuRow] = []
        self._listed: list[GpuRow] = []
        self._monitor = False
        """Columns are those of dmon, apart by blanks."""
        self._findings: list[Finding] = []
        self._details: dict[str, Value] = {}
        self._units = False
        """Values carry their units."""

    def take(self, line: Piece, *, cut: bool) -> None:
        """cut: nothing, not even a line's end, came behind it."""
        stripped = line.strip()
        if len(stripped.text) > MAX_LINE:
            self._refuse("malformed_row", stripped.cut(0, 200))
        elif is_prompt(stripped):
            return
        elif columns := header_columns(stripped):
            self._columns, self._header, self._monitor = columns, stripped.span, False
        elif (names := monitor_columns(stripped)) is not None:
            if names:
                self._columns, self._header = (
                    [Column(MONITOR.get(name, name), said=name) for name in names],
                    stripped.span,
                )
                self._monitor = True
        elif listed := listed_gpu(stripped):
            self._listed.append(listed)
        elif self._listed and _LISTED_SLICE.match(stripped.text):
            return
        elif "," not in stripped.text and (trouble_in(stripped) or details_in(stripped)):
            self._refuse("", stripped)
        else:
            self._row(stripped, cut)

    def _row(self, line: Piece, cut: bool) -> None:
        if self._monitor and "," not in line.text:
            cells = [line.cut(*word.span()) for word in _WORD.finditer(line.text)]
        else:
            cells = [unquoted(cell.strip()) for cell in line.split(",")]
        columns = self._columns or [Column(None)] * len(cells)
        try:
            if self._columns is None and len(cells) == 1 and not _NUMBER.fullmatch(line.text):
                raise NotAValue(line.text)
            if len(cells) == len(columns):
                self._gpus.append(self._gpu(columns, cells, cut))
                return
        except NotAValue:
            self._refuse("truncated_row" if cut else "malformed_row", line)
        else:
            counts = {"values": Value(len(cells), line.span), "columns": Value(len(columns), line.span)}
            self._refuse("truncated_row" if cut and len(cells) < len(columns) else "malformed_row", line, counts)

    def _gpu(self, columns: Sequence[Column], cells: Sequence[Piece], cut: bool) -> GpuRow:
        values: dict[str, Any] = {}
        spans: dict[str, Span] = {}
        other: dict[str, Value] = {}
        last = len(cells) - 1
        for number, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            name, form = _field_of(column, cell.text)
            if form is None or name in values:
                other[column.name or f"column {number + 1}"] = Value(_loose_value(cell.text), cell.span)
                continue
            values[name], spans[name] = value_of(form, cell.text, column.unit), cell.span
            if form in WITH_UNITS and values[name] is not None:
                if cut and number == last and self._units and lacks_unit(cell.text):
                    raise NotAValue(cell.text)  # its unit is missing, and with it perhaps digits
                self._units = self._units or not lacks_unit(cell.text)
        facts = {name: values.pop(name, None) for name in ("index", "name", "memory_total_mib", "memory_used_mib")}
        named = {"index": Value(facts["index"], spans["index"])} if "index" in spans else {}
        if fault := _fault(cells):
            values["error"], spans["error"] = fault.text, fault.span
            self._findings.append(finding_at(fault, FAULTY, RESET, named))
        if (action := values.get("recovery_action")) in ACTIONS:
            self._findings.append(action_wanted(action, spans, named))
        return GpuRow(**facts, **values, other=other, spans=spans)

    def _refuse(self, kind: str, line: Piece, named: dict[str, Value] | None = None) -> None:
        if details := details_in(line):
            self._details = {**details, **self._details}
            return
        self._findings.append(trouble_in(line) or finding_at(line, kind, named=named))

    def answer(self) -> GpuReading:
        columns = (
            None if self._header is None else tuple(column.said or column.name or "" for column in self._columns or ())
        )
        spans = NO_SPANS if self._header is None else {"columns": self._header}
        told = {gpu.index for gpu in self._gpus} | {gpu.uuid for gpu in self._gpus}
        listed = [gpu for gpu in self._listed if not told & {gpu.index, gpu.uuid}]
        if None in {gpu.index for gpu in self._gpus}:
            listed = []  # which of these the rows are of is not told
        return GpuReading((*self._gpus, *listed), columns, with_details(self._findings, self._details), spans=spans)


def action_wanted(action: str, spans: Mapping[str, Span], named: Mapping[str, Value] | None = None) -> Finding:
    """The driver itself says what is to be done."""
    return finding_at(Piece(action, spans["recovery_action"].start), FAULTY, ACTIONS[action], named)


def _fault(cells: Sequence[Piece]) -> Piece | None:
    """`[Unknown Error]` in one place is a sensor; in every place where a number belongs it is the GPU."""
    faults = [cell for cell in cells if fault_in(cell.text)]
    unknown = [cell for cell in faults if "Unknown Error" in cell.text]
    if unknown and len(unknown) >= len(cells) - 2:
        return unknown[0]
    return next((cell for cell in faults if cell not in unknown), None)


def _field_of(column: Column, text: str) -> tuple[str, Form | None]:
    """Of GpuFact; form None: it has no field."""
    if column.name is None:
        name = next((name for name, pattern in BY_FORM if pattern.fullmatch(text)), None)
        return ("", None) if name is None else (name, "text")
    return COLUMNS.get(column.name, ("", None))


def _loose_value(text: str) -> str | int | float | None:
    """A number without its unit, or the words."""
    if is_absent(text):
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    return float(found[1]) if "." in found[1] else int(found[1])


def unquoted(cell: Piece) -> Piece:
    """nvidia-smi quotes nothing; what has passed through a spreadsheet does."""
    text = cell.text
    return cell.cut(1, len(text) - 1) if len(text) >= 2 and text[0] == text[-1] == '"' else cell
