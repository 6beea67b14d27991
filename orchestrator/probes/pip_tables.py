"""Tables of packages: pip list, uv pip list, conda list and mamba list, with their header or cut out of their middle.

Rule: pure. Under a header every row of two words is a package; without one a row must look like one by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.probes.pip_facts import (
    NAME,
    VERSION,
    PipPackage,
    PipReading,
    PipTrouble,
    Row,
    placed,
    trouble,
    whole_name,
)

_HEADER = re.compile(r"#?\s*(?:Package|Name)\s+Version\b.*")
_RULE = re.compile(r"[-─━]{2,}(?:\s+[-─━]+)*")
_ROW = re.compile(r"(?P<name>\S+)\s+(?P<version>\S+)(?:\s+(?P<rest>\S.*))?")
_BUILD = re.compile(r"(?=.*\d)[A-Za-z0-9.]+(?:_[A-Za-z0-9.]+)*_\d+|\d{1,4}|h[0-9a-f]{7}|<pip>|<develop>")
_ALIGNED = re.compile(rf"(?P<name>{NAME})(?P<gap>\s+)(?P<version>{VERSION})(?P<rest>\s+\S.*)?")
_PROGRAMS = {"python", "pip", "uv", "conda", "mamba", "step", "epoch"}
"""`python 3.11.7` alone is a program that tells its version."""


class Table:
    """Feeds on rows; knows whether it is inside a table."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, int]] | None = None
        self._conda = False
        self._header = ""

    def read(self, rows: Sequence[Row], at: int, reading: PipReading) -> bool:
        text = rows[at].text
        if _HEADER.fullmatch(text) and not re.search(r"[=:;]", text):
            self._conda = "Build" in text.split() or text.startswith("#")
            self._columns, self._header = columns_of(text), text
            return True
        if self._columns is not None and _RULE.fullmatch(text):
            self._ruled(text)
            return True
        if not text:
            return False
        if self._columns is not None and self._inside(rows[at], reading):
            return True
        return self._alone(rows, at, reading)

    def _ruled(self, rule: str) -> None:
        """The row of dashes tells where columns begin; titles alone may touch (`location Location`)."""
        found = list(re.finditer(r"\S+", rule))
        if len(found) > 1:
            self._columns = [(self._header[run.start() : run.end()].strip(), run.start()) for run in found]

    def _inside(self, row: Row, reading: PipReading) -> bool:
        match = _ROW.fullmatch(row.text)
        if not match or not (re.fullmatch(VERSION, match["version"]) or self._in_its_column(match)):
            return False
        if re.match(r"[-~]", match["name"]):  # pip before 21 lists what it left half removed
            _half_removed(match["name"], match["version"], row, reading)
            return True
        if self._conda and re.fullmatch(f"_?{NAME}", match["name"]):
            reading.packages.append(placed(_conda_package(match), row))
            return True
        if not re.fullmatch(NAME, match["name"]):
            return False
        assert self._columns is not None
        titles = [title for title, _ in self._columns]
        editable = location = None
        for title, value in _cells(self._columns, row.text).items():
            if title == "Editable project location":
                editable = value or None
            elif title == "Location":
                location = value or None
        # Old pips have one column `Location`, which only an editable fills unless `-v` adds `Installer`.
        if location and "Installer" not in titles and "Editable project location" not in titles:
            editable = location
        package = PipPackage(
            match["name"], match["version"], editable=True if editable else None, location=editable or location
        )
        reading.packages.append(placed(package, row))
        return True

    def _in_its_column(self, match: re.Match[str]) -> bool:
        """A version of no known form is one where the header has its column: `1.0-dev`, `UNKNOWN`."""
        assert self._columns is not None
        starts = [start for title, start in self._columns if title == "Version"]
        return match.start("version") in starts and bool(re.search(r"\d|UNKNOWN", match["version"]))

    def _alone(self, rows: Sequence[Row], at: int, reading: PipReading) -> bool:
        row = rows[at]
        match = _ALIGNED.fullmatch(row.text)
        if not match:
            return False
        rest = (match["rest"] or "").split()
        is_conda = bool(rest) and bool(_BUILD.fullmatch(rest[0])) and len(rest) <= 3
        if not is_conda and not self._surely(rows, at, match):
            return False
        if is_conda:
            row_match = _ROW.fullmatch(row.text)
            assert row_match is not None
            reading.packages.append(placed(_conda_package(row_match), row))
            return True
        path = rest[0] if len(rest) == 1 and rest[0].startswith("/") else None
        package = PipPackage(match["name"], match["version"], editable=True if path else None, location=path)
        reading.packages.append(placed(package, row))
        return True

    @staticmethod
    def _surely(rows: Sequence[Row], at: int, match: re.Match[str]) -> bool:
        """Two columns are in a row: far apart, or in line with a neighbour."""
        rest = (match["rest"] or "").strip()
        if rest and not rest.startswith("/"):
            return False
        if len(match["gap"]) >= 2 and not rest:
            return True
        for other in (at - 1, at + 1):
            if 0 <= other < len(rows):
                neighbour = _ALIGNED.fullmatch(rows[other].text)
                if neighbour and neighbour.start("version") == match.start("version"):
                    return match["name"].lower() not in _PROGRAMS or len(neighbour["gap"]) > 1
        return False


def columns_of(header: str) -> list[tuple[str, int]]:
    """Titles with where they begin; a title may hold single blanks (`Editable project location`)."""
    return [(found[0], found.start()) for found in re.finditer(r"\S+(?: (?!Version\b)\S+)*", header.replace("#", " "))]


def _cells(columns: Sequence[tuple[str, int]], text: str) -> dict[str, str]:
    ends = [start for _, start in columns[1:]] + [len(text) + 1]
    return {title: text[start:end].strip() for (title, start), end in zip(columns, ends, strict=True)}


def _conda_package(match: re.Match[str]) -> PipPackage:
    words = (match["rest"] or "").split()
    build, channel = (words[0] if words else None), (words[1] if len(words) > 1 else None)
    by_pip = bool(build and (build.startswith("pypi") or build == "<pip>")) or channel == "pypi"
    develop = "<develop>" in words
    return PipPackage(
        match["name"],
        match["version"],
        source="pypi" if by_pip or develop else "conda",
        build=build,
        editable=develop or None,
    )


def _half_removed(stump: str, version: str, row: Row, reading: PipReading) -> None:
    reading.findings.append(half_removed(stump, row, version=version))


def half_removed(stump: str, row: Row, *, folder: str | None = None, version: str | None = None) -> PipTrouble:
    name = whole_name(stump)
    # Older pips turn the tilde into a dash before they print it.
    on_disk = "~" + re.sub(r"^[~-]", "", stump)
    what = name or "?" + re.sub(r"^[~-]+", "", stump)
    where = f"{folder.rstrip('/')}/" if folder else ""
    again = f"install {name} again, then " if name else ""
    meaning = f"{what}{' ' + version if version else ''} is half removed: an upgrade was cut off and left {on_disk}"
    return trouble(row, "half_removed", meaning, name, found=version, way_out=f"{again}remove {where}{on_disk}*")
