"""Block devices, btrfs and the health of pools: `lsblk`, `btrfs filesystem usage` and `df`, `zpool status`.

Rule: lsblk's columns are known by where their titles stand, for cells may be empty. btrfs has room while there is
some in its chunks, or space of its devices that no chunk has taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.probes.disk_volumes import NEARLY_FULL_PERCENT, Volume, size_bytes
from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Piece, Span, Value

MAX_LINE = 4096
_WORD = re.compile(r"\S+")
_HEADER = re.compile(r"NAME\s.*\b(?:MAJ:MIN|FSTYPE|FSUSE%|MOUNTPOINTS?)(?:\s.*)?")
_OTHERS = re.compile(r"\b(?:USED|AVAIL|ALLOC|PROPERTY)\b")
"""Of zfs and zpool, whose tables begin with NAME, too."""
_TREE = re.compile(r"[\s|`\u2500-\u257f-]*(?=\w)")
_COLUMNS = {
    "SIZE": "total_bytes",
    "FSSIZE": "total_bytes",
    "FSUSED": "used_bytes",
    "FSAVAIL": "available_bytes",
    "FSUSE%": "used_percent",
    "MOUNTPOINT": "mount",
    "MOUNTPOINTS": "mount",
    "TYPE": "kind",
    "FSTYPE": "kind",
}
_IMAGES = {"squashfs", "iso9660", "erofs", "udf", "loop", "rom"}
"""Full by nature."""
_OVERALL = {"device size": "total_bytes", "used": "used_bytes", "free (estimated)": "available_bytes"}
_OVERALL_LINE = re.compile(r"\s+(?P<title>[A-Z][\w (),]{2,40}):\s+(?P<size>[\d.]{1,12}[KMGTPE]?i?B)(?:\s.*)?")
_PROFILE = re.compile(
    r"(?P<what>Data|Metadata|System|Data\+Metadata),\s?\w{1,10}: Size:(?P<size>[\d.]{1,12}[KMGTPE]?i?B), "
    r"Used:(?P<used>[\d.]{1,12}[KMGTPE]?i?B)(?: \((?P<percent>[\d.]{1,6})%\))?"
)
_PROFILE_OF_DF = re.compile(
    r"(?P<what>Data|Metadata|System|Data\+Metadata|GlobalReserve), ?\w{1,10}: total=(?P<size>[\d.]{1,12}[KMGTPE]?i?B), "
    r"used=(?P<used>[\d.]{1,12}[KMGTPE]?i?B)"
)
_POOL = re.compile(r"\s*pool: (?P<pool>\S{1,120})\s*")
_STATE = re.compile(r"\s*state: (?P<state>[A-Z]{4,12})\s*")
_LOST = re.compile(r"errors: (?:Permanent errors|\d{1,9} data errors).*")
_DEVICE = re.compile(r"\s+(?P<device>/dev/\S{1,300})\s+[\d.]{1,12}[KMGTPE]?i?B\s*")
CHUNK_BYTES = 1024**3
"""With less than this not taken, btrfs makes no further chunk."""


class BlockReader:
    """Takes the lines of a text in order."""

    def __init__(self) -> None:
        self._header: list[re.Match[str]] = []
        self._found: list[tuple[Volume, Piece]] = []
        self._btrfs: _Btrfs | None = None
        self._pool: Piece | None = None
        self._sick: list[tuple[Volume, Piece]] = []
        self._all_btrfs: list[_Btrfs] = []

    def take(self, line: Piece) -> bool:
        """Whether the line is one of a table that is known here."""
        text = line.text[:MAX_LINE]
        if _HEADER.fullmatch(text.strip()) and not _OTHERS.search(text):
            self._header = list(_WORD.finditer(text))
            return True
        if text.strip() == "Overall:":
            self._header, self._btrfs = [], _Btrfs(line.strip())
            self._all_btrfs.append(self._btrfs)
            return True
        if self._of_pool(line, text):
            return True
        if found := _PROFILE_OF_DF.fullmatch(text.rstrip()):
            if found["what"].startswith("Data"):
                named = {"name": line.span, "kind": line.place(found, "what")}
                spans = {**named, "total_bytes": line.place(found, "size"), "used_bytes": line.place(found, "used")}
                sizes = [size_bytes(found[group], None) for group in ("size", "used")]
                volume = Volume("Data", "btrfs", total_bytes=sizes[0], used_bytes=sizes[1], spans=spans)
                self._found.append((volume, line))
            return True
        if self._btrfs is not None and self._btrfs.take(line):
            return True
        if not self._header:
            return False
        taken = self._row(line, text)
        if not taken:
            self._header = []
        return taken

    def _of_pool(self, line: Piece, text: str) -> bool:
        """Of `zpool status`."""
        if found := _POOL.fullmatch(text):
            self._pool = line.cut(*found.span("pool"))
            return True
        if self._pool is None:
            return False
        if found := _STATE.fullmatch(text):
            spans = {"name": self._pool.span, "kind": self._pool.span, "health": line.place(found, "state")}
            volume = Volume(self._pool.text, "zpool", health=found["state"], spans=spans)
            self._found.append((volume, line.strip()))
            if volume.health != "ONLINE":
                self._sick.append((volume, line.strip()))
            return True
        if _LOST.fullmatch(text.strip()):
            name = Volume(self._pool.text, "zpool", spans={"name": self._pool.span})
            self._sick.append((name, line.strip()))
            return True
        return False

    def _row(self, line: Piece, text: str) -> bool:
        tree = _TREE.match(text)
        if tree is None:
            return False
        cells: dict[str, list[Span]] = {}
        for number, word in enumerate(_WORD.finditer(text, tree.end())):
            title = "NAME" if number == 0 and tree.end() < self._header[1].start() else self._title_of(word)
            if title is not None:
                cells.setdefault(title, []).append(Span(*word.span()))
        if "NAME" not in cells:
            return text[:1].isspace() or text.lstrip("\u2502 ").startswith("/")  # a device's further mounts
        if len(cells["NAME"]) > 1:
            return False  # a device's name has no blank
        values: dict[str, Any] = {"kind": ""}
        spans: dict[str, Span] = {}
        for title, places in cells.items():
            field = "name" if title == "NAME" else _COLUMNS.get(title)
            if field is None or (field in spans and title != "TYPE"):
                continue
            place = Span(places[0].start, places[-1].end)
            value = _value(field, text[place.start : place.end])
            if value is None:
                return False
            values[field], spans[field] = value, Span(line.start + place.start, line.start + place.end)
        spans.setdefault("kind", spans["name"])
        values["kind"] = values["kind"] or "block"
        if not cells.keys() - {"NAME"} and len(self._header) > 3 and "MAJ:MIN" in {word[0] for word in self._header}:
            return False
        self._found.append((Volume(**values, spans=spans), line.strip()))
        return True

    def _title_of(self, word: re.Match[str]) -> str | None:
        """The column that it stands under: titles and cells are both at the left or both at the right."""
        for title in self._header:
            if word.start() < title.end() and word.end() > title.start():
                return title[0]
        before = [title[0] for title in self._header if title.end() <= word.start()]
        return before[-1] if before else None

    def answer(self) -> tuple[Volume, ...]:
        return (*(volume for volume, _ in self._found), *(one.volume() for one in self._all_btrfs))

    def findings(self) -> Iterator[Finding]:
        for volume, line in self._found:
            percent, mount = volume.used_percent, volume.mount or ""
            if percent is None or percent < NEARLY_FULL_PERCENT or volume.kind in _IMAGES or mount.startswith("/snap/"):
                continue
            kind = "disk_full" if percent >= 100 else "disk_nearly_full"
            named = {"volume": Value(volume.name, volume.spans["name"])}
            named |= {name: Value(getattr(volume, name), volume.spans[name]) for name in ("mount", "used_percent")
                      if name in volume.spans}  # fmt: skip
            yield finding_at(line, kind, f"free space (du -xh) on {mount or volume.name}", named)
        for volume, line in self._sick:
            named = {"volume": Value(volume.name, volume.spans["name"])}
            if volume.health is not None:
                named["health"] = Value(volume.health, volume.spans["health"])
            way_out = f"the rows of zpool status -v {volume.name} name the device; replace it: zpool replace"
            yield finding_at(line, "pool_unhealthy", way_out, named)
        for one in self._all_btrfs:
            yield from one.findings()


class _Btrfs:
    """What one `btrfs filesystem usage` tells."""

    def __init__(self, begin: Piece) -> None:
        self._name = begin
        self._begin = begin
        self._sizes: dict[str, tuple[int, Piece]] = {}
        self._metadata: tuple[float, Piece, Piece] | None = None

    def take(self, line: Piece) -> bool:
        text = line.text[:MAX_LINE]
        if found := _OVERALL_LINE.fullmatch(text.rstrip()):
            title = found["title"].lower()
            if title in {*_OVERALL, "device unallocated"} and (size := size_bytes(found["size"], None)) is not None:
                self._sizes.setdefault(title, (size, line.cut(*found.span("size"))))
            return True
        if found := _PROFILE.match(text):
            whole, used = size_bytes(found["size"], None), size_bytes(found["used"], None)
            if found["what"] == "Metadata" and whole and used is not None:
                place = line.cut(*found.span("percent" if found["percent"] else "used"))
                self._metadata = (float(found["percent"] or round(100 * used / whole, 2)), place, line.strip())
            return True
        if found := _DEVICE.fullmatch(text):
            if self._name is self._begin:
                self._name = line.cut(*found.span("device"))
            return True
        return text.strip() == "Unallocated:"

    def volume(self) -> Volume:
        values: dict[str, Any] = {}
        spans = {"name": self._name.span, "kind": self._begin.span}
        for title, field in _OVERALL.items():
            if title in self._sizes:
                values[field], spans[field] = self._sizes[title][0], self._sizes[title][1].span
        if self._metadata is not None:
            values["metadata_percent"], spans["metadata_percent"] = self._metadata[0], self._metadata[1].span
        return Volume(self._name.text.rstrip(":"), "btrfs", **values, spans=spans)

    def findings(self) -> Iterator[Finding]:
        total, used = (self._sizes.get(title) for title in ("device size", "used"))
        untaken = self._sizes.get("device unallocated")
        named = {"volume": Value(self._name.text.rstrip(":"), self._name.span)}
        if total is not None and used is not None and used[0] >= NEARLY_FULL_PERCENT / 100 * total[0]:
            way_out = "free space (du -xh), old snapshots too: btrfs subvolume list -s"
            yield finding_at(used[1], "disk_nearly_full", way_out, named)
        if self._metadata is None or untaken is None or untaken[0] >= CHUNK_BYTES:
            return
        percent, place, line = self._metadata
        if percent >= NEARLY_FULL_PERCENT:
            way_out = "btrfs balance start -dusage=10 gives chunks back; without one it says `no space left`"
            named = {**named, "metadata_percent": Value(percent, place.span)}
            yield finding_at(line, "pool_metadata_nearly_full", way_out, named)


def _value(field: str, text: str) -> str | int | float | None:
    if field.endswith("_percent"):
        return float(text[:-1]) if re.fullmatch(r"\d{1,3}%", text) else None
    return size_bytes(text, 1) if field.endswith("_bytes") else text
