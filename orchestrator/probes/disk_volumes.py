"""What stands behind a file system: `zpool list`, `zfs list`, `zfs get`, `lvs`, `vgs`, `pvesm status`, `quota`.

Rule: a table is known by its header and read by its columns; a number whose column does not name it is none. A thin
pool that is full stops every container on it while `df` inside still shows free space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Located, Piece, Span, Value

NEARLY_FULL_PERCENT = 95.0
MAX_LINE = 4096
_UNIT = re.compile(r"(?<=\S) \(([KMGT]?i?B)\)")
"""In a title, of newer ones of Proxmox."""
_WORD = re.compile(r"\S+")
_SIZE = re.compile(r"<?(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<letter>[BKMGTPE]?)(?:iB|B)?\*?", re.IGNORECASE)
_PERCENT = re.compile(r"(?P<number>\d{1,3}(?:\.\d{1,2})?)%?")
_POWERS = {letter: 1024**power for power, letter in enumerate("BKMGTPE")}
_COLUMNS: dict[str, dict[str, str]] = {
    "zpool": {"SIZE": "total_bytes", "ALLOC": "used_bytes", "FREE": "available_bytes", "CAP": "used_percent"}
    | {"HEALTH": "health"},
    "zfs": {"USED": "used_bytes", "AVAIL": "available_bytes", "MOUNTPOINT": "mount"},
    "lvm": {"LSize": "total_bytes", "Data%": "used_percent", "Meta%": "metadata_percent"},
    "vg": {"VSize": "total_bytes", "VFree": "available_bytes"},
    "storage": {"Total": "total_bytes", "Used": "used_bytes", "Available": "available_bytes", "%": "used_percent"}
    | {"Status": "health"},
    "quota": {"blocks": "used_bytes", "space": "used_bytes", "used": "used_bytes", "limit": "total_bytes"},
}
"""A table's kind -> its columns that have a field."""
_HEADERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("zpool", re.compile(r"NAME\s+SIZE\s+ALLOC\s+FREE\s")),
    ("zfs get", re.compile(r"NAME\s+PROPERTY\s+VALUE\s+SOURCE\s*$")),
    ("zfs", re.compile(r"NAME\s(?=.*\bUSED\b)(?=.*\bAVAIL\b)")),
    ("lvm", re.compile(r"LV\s+VG\s+Attr\s+LSize\b")),
    ("vg", re.compile(r"VG\s+#PV\s.*\bVSize\s+VFree\b")),
    ("storage", re.compile(r"Name\s+Type\s+Status\s+Total(?P<unit> \([KMGT]?i?B\))?\s+Used.*\sAvailable.*\s%\s*$")),
    ("quota", re.compile(r"Filesystem\s+(?:blocks|space|used|kbytes)\s+quota\s+limit\s+grace\b")),
)
_PROPERTIES = {
    "used": "used_bytes",
    "available": "available_bytes",
    "size": "total_bytes",
    "volsize": "total_bytes",
    "mountpoint": "mount",
    "health": "health",
    "capacity": "used_percent",
}
_MEASURED = {"total_bytes", "used_bytes", "available_bytes", "used_percent"}
_HEALTHY = {"ONLINE", "active"}
_MEANT = "disabled"
"""A storage of Proxmox that a person took out of use."""
_BLOCK = {"quota": 1024, "storage": 1024}
"""What a number without a unit counts. In the other tables it is a byte, or unknown."""


@dataclass(frozen=True)
class Volume(Located):
    """A pool, a dataset, a logical volume, a storage of Proxmox, or what a quota allows."""

    name: str
    kind: str
    """zpool, zfs, lvm, lvm-thin-pool, lvm-thin, vg, quota, or a storage's type."""
    mount: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    used_percent: float | None = None
    metadata_percent: float | None = None
    """Of a thin pool: full, it is as read-only as one without space."""
    health: str | None = None


class VolumeReader:
    """Takes the lines of a text in order."""

    def __init__(self) -> None:
        self._kind = ""
        self._block: int | None = None
        self._header: list[re.Match[str]] = []
        self._name: Piece | None = None
        self._volumes: list[Volume] = []
        self._lines: list[Piece] = []
        self._properties: dict[str, dict[str, Piece]] = {}

    def take(self, line: Piece) -> bool:
        """Whether the line is one of a table that is known here."""
        text = line.text[:MAX_LINE]
        kind = next((kind for kind, header in _HEADERS if header.match(text.strip())), None)
        if kind is not None:
            units = list(_UNIT.finditer(text))
            self._block = size_bytes(f"1{units[0][1]}", None) if units else _BLOCK.get(kind)
            self._header = list(_WORD.finditer(_UNIT.sub(lambda found: " " * len(found[0]), text)))
            self._kind, self._name = kind, None
            return True
        if not self._kind:
            return False
        words = [line.cut(*word.span()) for word in _WORD.finditer(text)]
        taken = self._property(words) if self._kind == "zfs get" else self._row(line, words)
        if not taken:
            self._kind = ""
        return taken

    def _property(self, words: Sequence[Piece]) -> bool:
        if len(words) < 3 or not re.fullmatch(r"[a-z][a-z0-9_:.@-]*", words[1].text):
            return False
        if (field := _PROPERTIES.get(words[1].text)) is not None:
            self._properties.setdefault(words[0].text, {"name": words[0]}).setdefault(field, words[2])
        return True

    def _row(self, line: Piece, words: list[Piece]) -> bool:
        kind = self._kind
        if kind == "quota" and len(words) == 1:
            self._name = words[0]  # a long name has its numbers on the next line
            return True
        name, self._name = self._name, None
        cells = self._cells(line, [name, *words] if name is not None else words)
        if cells is None:
            return False
        if kind == "zpool" and line.text[:1].isspace():
            return True  # a part of the pool above
        first = cells[0][1]
        values: dict[str, Any] = {"name": first.text, "kind": kind}
        spans = {"name": first.span, "kind": Span(first.start, first.start)}
        if kind == "lvm":
            attributes = next((cell for title, cell in cells if title == "Attr"), None)
            values["kind"] = {"t": "lvm-thin-pool", "V": "lvm-thin"}.get(
                attributes.text[:1] if attributes else "", "lvm"
            )
            spans["kind"] = first.span if attributes is None else attributes.span
        elif kind == "storage":
            values["kind"], spans["kind"] = cells[1][1].text, cells[1][1].span
        else:
            spans["kind"] = first.span
        for title, cell in cells[1:]:
            field = _COLUMNS[kind].get(title)
            if field is None or field in values:
                continue
            values[field], spans[field] = _value(field, cell.text, self._block), cell.span
        if kind == "quota" and values.get("total_bytes") == 0:
            values["total_bytes"] = None  # no limit
        if kind == "storage" and values.get("health") not in _HEALTHY:  # whose zeros nobody measured
            values = {field: None if field in _MEASURED else value for field, value in values.items()}
        self._put(line.strip(), values, spans)
        return True

    def _cells(self, line: Piece, words: list[Piece]) -> list[tuple[str, Piece]] | None:
        """(title, cell). None: it is no row of this table."""
        titles = [word[0] for word in self._header]
        if self._kind == "lvm":  # columns may be empty
            known = len(words) >= 4 and re.fullmatch(r"[a-zA-Z-]{6,12}", words[2].text) is not None
            if not known or not _SIZE.fullmatch(words[3].text):
                return None
            cells = list(zip(titles[:4], words[:4], strict=True))
            for word in words[4:]:
                at = word.start - line.start
                before = [title for title in self._header[4:] if title.start() <= at]
                if before:
                    cells.append((before[-1][0], word))
            return cells
        if self._kind == "zfs" and titles[-1] == "MOUNTPOINT" and len(words) > len(titles):
            last = words[len(titles) - 1]
            words = [*words[: len(titles) - 1], line.cut(last.start - line.start, len(line.text.rstrip()))]
        if self._kind == "quota":
            if len(words) < 4 or not _SIZE.fullmatch(words[1].text):
                return None
            return list(zip(titles, words[:4], strict=False))
        if len(words) != len(titles):
            return None
        cells = list(zip(titles, words, strict=True))
        sizes = [cell for title, cell in cells if _COLUMNS[self._kind].get(title, "").endswith("_bytes")]
        return cells if all(cell.text == "-" or _SIZE.fullmatch(cell.text) for cell in sizes) else None

    def _put(self, line: Piece, values: dict[str, Any], spans: dict[str, Span]) -> None:
        self._volumes.append(Volume(**values, spans=spans))
        self._lines.append(line)

    def answer(self) -> tuple[Volume, ...]:
        for name, said in self._properties.items():
            spans = {field: piece.span for field, piece in said.items()}
            values = {field: _value(field, piece.text, None) for field, piece in said.items() if field != "name"}
            kind = "zpool" if "used_percent" in said else "zfs"
            self._put(said["name"], {"name": name, "kind": kind, **values}, {**spans, "kind": said["name"].span})
        self._properties = {}
        return tuple(self._volumes)

    def findings(self) -> Iterator[Finding]:
        for volume, line in zip(self._volumes, self._lines, strict=True):
            yield from _findings(volume, line)


def _findings(volume: Volume, line: Piece) -> Iterator[Finding]:
    def named(**more: str) -> Mapping[str, Value]:
        of = {"volume": "name", **more}
        return {name: Value(getattr(volume, field), volume.spans[field]) for name, field in of.items()}

    if volume.health is not None and volume.health not in {*_HEALTHY, _MEANT}:
        of_pool = volume.kind == "zpool"
        way_out = f"zpool status {volume.name}" if of_pool else "pvesm status   and journalctl -u pvestatd: why not"
        yield finding_at(line, "pool_unhealthy", way_out, named(health="health"))
    if volume.kind == "quota":
        if "*" in line.text:
            yield finding_at(line, "disk_quota", "free space, or have the quota raised: quota -s", named())
        return
    free = f"free space in {volume.name}, or make it larger; `df` inside a container does not show it"
    # All of a thin volume may have been written to once, with room in the file system on it.
    percent = volume.used_percent if volume.kind != "lvm-thin" else None
    metadata = volume.metadata_percent
    if (percent is not None and percent >= 100) or (volume.available_bytes == 0 and volume.kind == "zfs"):
        field = "used_percent" if percent is not None else "available_bytes"
        yield finding_at(line, "disk_full", free, named(**{field: field}))
    elif percent is not None and percent >= NEARLY_FULL_PERCENT:
        yield finding_at(line, "disk_nearly_full", free, named(used_percent="used_percent"))
    if metadata is not None and metadata >= NEARLY_FULL_PERCENT:
        way_out = f"lvextend --poolmetadatasize +1G {volume.name}"
        yield finding_at(line, "pool_metadata_nearly_full", way_out, named(metadata_percent="metadata_percent"))


def _value(field: str, text: str, block: int | None) -> str | int | float | None:
    if text in ("-", "none", "legacy") and field != "health":
        return None
    if field.endswith("_percent"):
        percent = _PERCENT.fullmatch(text)
        return float(percent["number"]) if percent else None
    if not field.endswith("_bytes"):
        return text
    return size_bytes(text, block)


def size_bytes(text: str, block: int | None) -> int | None:
    """block: what a number without a unit counts."""
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    if not size["letter"] and block is None:
        return 0 if float(size["number"]) == 0 else None
    return round(float(size["number"]) * (_POWERS[size["letter"].upper()] if size["letter"] else block or 1))
