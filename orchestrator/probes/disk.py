"""What `df` and `du` print, whole, wrapped or headerless: how full each file system is, and what could not be told.

Rule: a size whose unit nobody names is unknown; a table with an error beside it is still a table; 100 % of a file
system that is full by nature (squashfs) is no alarm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.probes.disk_blocks import BlockReader
from orchestrator.probes.disk_trouble import tool_error, write_troubles
from orchestrator.probes.disk_volumes import Volume, VolumeReader
from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import OWN_WORDS, Located, Piece, Span, Value, said_lines

NEARLY_FULL_PERCENT = 95
MAX_LINE = 4096
TREND_ROWS = 3
FULL_BY_NATURE = {"squashfs", "iso9660", "erofs", "udf", "cramfs", "romfs"}

_SIZE = r"[0-9]{1,20}(?:[.,][0-9]{1,3})?(?:[KMGTPEZ](?:i?B|i)?|B)?"
_ROW = re.compile(
    rf"(?:(?P<device>\S.{{0,500}}?)\s+)?(?:(?P<type>[A-Za-z][\w.-]{{0,30}})\s+)?(?P<total>{_SIZE}|-)\s+(?P<used>-?{_SIZE}|-)\s+"
    rf"(?P<available>-?{_SIZE}|-)\s+(?P<percent>[0-9]{{1,3}} ?%|-)\s+"
    r"(?:(?P<iused>[0-9.]{1,15}[kMGT]?)\s+(?P<ifree>[0-9.]{1,15}[kMGT]?)\s+(?P<ipercent>[0-9]{1,3}%|-)\s+)?(?P<mount>(?:/|[A-Za-z]:).*|-)"
)
_HEADER = re.compile(
    r"(?:Filesystem|Dateisystem|Sys\. de fichiers|S\.ficheros|文件系统|ファイルシス|SOURCE(?=\s+FSTYPE\s+SIZE))"
    r"\s+(?P<columns>.*)"
)
_OTHER_HEADER = re.compile(r"(?:\S+ ){0,2}\S+ {2,}(?P<columns>[^%\n]{1,120}\s(?=[^\W\d])[\w.]{1,10}%\s.*)")
"""Of a language that is not listed: one of its columns is a word with a percent sign."""
_BLOCKS = re.compile(
    r"\b(?P<size>1|512|1024|4096)(?P<unit>(?<=1)[KMGB])?(?:-\S|的)"
    r"|\bblo\w{1,8} d[ei] (?P<size2>1|512|1024)(?P<unit2>[KMGB])?"
)
_IN_BYTES = re.compile(r"\b(?:Size|Größe|Taille|Tam\b|Tamaño|Dimens|容量|サイズ)")
_DU = re.compile(rf"(?P<size>{_SIZE})\t(?P<path>\S.*)")
_POWERS: dict[str, int] = {letter: 1024**power for power, letter in enumerate("BKMGTPEZ")}


@dataclass(frozen=True)
class FileSystem(Located):
    device: str | None
    type: str | None
    mount: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    used_percent: int | None = None
    inodes_total: int | None = None
    """None with a place in the text: there is no limit."""
    inodes_used: int | None = None
    inodes_free: int | None = None
    inodes_used_percent: int | None = None
    full_by_nature: bool = field(default=False, metadata=OWN_WORDS)
    """A read-only image: 100 % is what it always says."""


@dataclass(frozen=True)
class Usage(Located):
    """One line of du."""

    path: str
    size_bytes: int | None
    number: int | None = None
    """Without a unit: blocks of 1 KiB as a rule, bytes with -b."""


@dataclass(frozen=True)
class Trend(Located):
    """One file system, told of again and again."""

    mount: str
    samples: int
    first_percent: int
    last_percent: int
    per_sample_bytes: int | None
    """By how much it grew from one to the next, on average."""
    samples_left: float | None
    """Until it is full, at that rate. None: it does not grow."""


@dataclass(frozen=True)
class DiskReading(Located):
    filesystems: tuple[FileSystem, ...]
    volumes: tuple[Volume, ...]
    """Pools, logical volumes and quotas: what zpool, zfs, lvs, vgs, pvesm, quota, lsblk and btrfs tell."""
    usages: tuple[Usage, ...]
    total_bytes: int | None
    """du's grand total."""
    lower_bound: bool | None
    """True: du could not read everything, so it is more than that."""
    trends: tuple[Trend, ...]
    findings: tuple[Finding, ...]


def read_disk(text: str) -> DiskReading:
    reader = _Reader()
    for line in said_lines(text):
        reader.take(line)
    return reader.reading(text)


class _Reader:
    def __init__(self) -> None:
        self._filesystems: list[FileSystem] = []
        self._volumes = VolumeReader()
        self._blocks = BlockReader()
        self._usages: list[Usage] = []
        self._errors: list[Finding] = []
        self._du_errors: list[Span] = []
        self._columns: _Columns | None = None
        self._name: Piece | None = None
        """A row's first part, whose numbers are on the next line."""

    def take(self, line: Piece) -> None:
        text = line.text[:MAX_LINE]
        name, self._name = self._name, None
        if self._volumes.take(line) or self._blocks.take(line):
            return
        header = _HEADER.match(text) or (None if _ROW.fullmatch(text.strip()) else _OTHER_HEADER.match(text))
        if header:
            self._columns = _Columns(header["columns"])
        elif (error := tool_error(line)) is not None:
            self._errors.append(error)
            if error.named["tool"].value == "du":
                self._du_errors.append(line.span)
        elif usage := _DU.fullmatch(text.rstrip()):
            self._usages.append(_usage(line, usage))
        elif "%" in text or " -" in text:
            self._row(line, text, name)
        elif text == text.lstrip() and len(text.split()) <= 2:
            self._name = line

    def _row(self, line: Piece, text: str, name: Piece | None) -> None:
        wrapped = text != text.lstrip() and name is not None
        row = _ROW.fullmatch(text.strip())
        if row is None or (not row["device"] and not wrapped):
            return
        filesystem = _filesystem(line.strip(), row, self._columns or _Columns(""), name if wrapped else None)
        if filesystem is not None:
            self._filesystems.append(filesystem)

    def reading(self, text: str) -> DiskReading:
        total = next((usage for usage in self._usages if usage.path == "total"), None)
        spans: dict[str, Span] = {}
        if total is not None:
            spans["total_bytes"] = total.spans["path"] if total.size_bytes is None else total.spans["size_bytes"]
        if self._usages:
            first = self._usages[0].spans["path"]
            errors = self._du_errors
            spans["lower_bound"] = Span(errors[0].start, errors[-1].end) if errors else first
        return DiskReading(
            filesystems=tuple(self._filesystems),
            volumes=(*self._volumes.answer(), *self._blocks.answer()),
            usages=tuple(usage for usage in self._usages if usage is not total),
            total_bytes=None if total is None else total.size_bytes,
            lower_bound=bool(self._du_errors) if self._usages else None,
            trends=tuple(_trends(self._filesystems)),
            findings=(
                *self._errors,
                *_full(self._filesystems, text),
                *self._volumes.findings(),
                *self._blocks.findings(),
                *write_troubles(text),
            ),
            spans=spans,
        )


class _Columns:
    """What a header says of the numbers below it."""

    def __init__(self, columns: str) -> None:
        words = columns.split()
        self.known = bool(words)
        self.inodes = any(word.lower() in ("inodes", "iused", "ifree", "iuse%") for word in words[:3])
        self.typed = bool(words) and words[0] in ("Type", "Typ", "类型", "FSTYPE")
        self.block_bytes: int | None = 1 if _IN_BYTES.search(columns) else None
        if blocks := _BLOCKS.search(columns):
            size, unit = blocks["size"] or blocks["size2"], blocks["unit"] or blocks["unit2"]
            self.block_bytes = int(size) * _POWERS[unit or "B"]


def _filesystem(line: Piece, row: re.Match[str], columns: _Columns, name: Piece | None) -> FileSystem | None:
    values: dict[str, Any] = {"device": None, "type": None}
    spans: dict[str, Span] = {}

    def put(field_name: str, value: Any, group: str) -> None:
        values[field_name] = value
        spans[field_name] = line.place(row, group)

    device, kind = row["device"], row["type"]
    if name is not None:
        words = name.strip()
        values["device"], spans["device"] = words.text, words.span
    elif device and kind and columns.known and not columns.typed:
        # A name with a blank, and no column of types.
        words = line.cut(row.start("device"), row.end("type"))
        values["device"], spans["device"] = words.text, words.span
        kind = None
    elif device:
        put("device", device, "device")
    if kind:
        put("type", kind, "type")
    put("mount", row["mount"].rstrip(), "mount")
    spans["mount"] = Span(spans["mount"].start, spans["mount"].start + len(values["mount"]))
    prefix = "inodes_" if columns.inodes else ""
    names = (
        ("inodes_total", "inodes_used", "inodes_free") if prefix else ("total_bytes", "used_bytes", "available_bytes")
    )
    for field_name, group in zip(names, ("total", "used", "available"), strict=True):
        put(field_name, _size(row[group], 1 if prefix else columns.block_bytes), group)
    percent = row["percent"].rstrip("% ")
    put(f"{prefix}used_percent", int(percent) if percent.isdecimal() else None, "percent")
    for field_name, group in (("inodes_used", "iused"), ("inodes_free", "ifree")):
        if row[group]:  # df of macOS and the BSDs tells both in one row
            put(field_name, _count(row[group]), group)
    if row["ipercent"] and row["ipercent"] != "-":
        put("inodes_used_percent", int(row["ipercent"][:-1]), "ipercent")
    if prefix and row["percent"] == "-" and values["inodes_total"] == 0:
        values["inodes_total"] = None
    snap = str(values["device"] or "").startswith("/dev/loop") and values["mount"].startswith(
        ("/snap/", "/var/lib/snapd/")
    )
    return FileSystem(**values, full_by_nature=snap or values["type"] in FULL_BY_NATURE, spans=spans)


def _size(text: str, block_bytes: int | None) -> int | None:
    """`1.9G`, `22346236` (in blocks), `-`: unknown."""
    if text == "-":
        return None
    found = re.fullmatch(r"(-?[0-9.,]+)(?:([KMGTPEZ])?(?:i?B|i)?)", text)
    if found is None:
        return None
    number, letter = found[1].replace(",", "."), found[2]
    if letter or text.endswith("B"):
        return round(float(number) * _POWERS[letter or "B"])
    if "." in number or block_bytes is None:
        return 0 if number == "0" else None
    return int(number) * block_bytes


def _count(text: str) -> int | None:
    """`404k`: of 1000 each."""
    number, power = text.rstrip("kMGT"), "kMGT".find(text[-1]) + 1
    return round(float(number) * 1000.0**power) if number.count(".") < 2 and number.strip(".") else None


def _usage(line: Piece, found: re.Match[str]) -> Usage:
    spans = {
        name: line.place(found, group) for name, group in (("path", "path"), ("size_bytes", "size"), ("number", "size"))
    }
    size = _size(found["size"], None)
    bare = found["size"].isdecimal()
    spans.pop("size_bytes" if bare and size is None else "number")
    return Usage(found["path"].rstrip(), size, int(found["size"]) if bare and size is None else None, spans=spans)


def _full(filesystems: Sequence[FileSystem], text: str) -> Iterator[Finding]:
    """The last word of each mount."""
    latest = {(one.mount, one.inodes_used_percent is None): one for one in filesystems if not one.full_by_nature}
    for one in latest.values():
        for what, percent, name in (
            ("disk", one.used_percent, "used_percent"),
            ("inodes", one.inodes_used_percent, "inodes_used_percent"),
        ):
            if percent is None or percent < NEARLY_FULL_PERCENT:
                continue
            begin = text.rfind("\n", 0, one.spans["mount"].start) + 1
            line = Piece(text[begin : one.spans["mount"].end], begin).strip()
            kind = f"{what}_full" if percent >= 100 else f"{what}_nearly_full"
            named = {"mount": Value(one.mount, one.spans["mount"]), name: Value(percent, one.spans[name])}
            where = "count the files (du --inodes -x), remove old ones" if what == "inodes" else "free space (du -xh)"
            yield finding_at(line, kind, f"{where} on {one.mount}", named)


def _trends(filesystems: Sequence[FileSystem]) -> Iterator[Trend]:
    by_mount: dict[str, list[FileSystem]] = {}
    for one in filesystems:
        if one.used_percent is not None:
            by_mount.setdefault(one.mount, []).append(one)
    for mount, rows in by_mount.items():
        first, last = rows[0], rows[-1]
        if len(rows) < TREND_ROWS or first.used_percent is None or last.used_percent is None:
            continue
        grown = None
        if first.used_bytes is not None and last.used_bytes is not None:
            grown = round((last.used_bytes - first.used_bytes) / (len(rows) - 1))
        left = None
        if grown is not None and grown > 0 and last.available_bytes is not None:
            left = round(last.available_bytes / grown, 2)
        whole = Span.over(span for row in (first, last) for span in row.spans.values())
        spans = dict.fromkeys(("samples", "per_sample_bytes", "samples_left"), whole)
        spans["mount"] = last.spans["mount"]
        spans["first_percent"], spans["last_percent"] = first.spans["used_percent"], last.spans["used_percent"]
        yield Trend(mount, len(rows), first.used_percent, last.used_percent, grown, left, spans=spans)
