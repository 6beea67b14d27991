"""Rows that name a package: freeze lines, requirements, install messages, legacy and tree rows. Tables are pip_tables.

Rule: pure; a row that is not surely one of these is not read: a wrong package is worse than one left out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import unquote

from orchestrator.probes.pip_facts import NAME, VERSION, PipPackage, PipReading, Row, placed, trouble

_PINNED = re.compile(
    rf"(?:[$>]\s+)?(?P<name>{NAME})\s?(?:\[[^\]]*\])?\s?(?:===|==)\s?(?P<version>[^\s;#,\\]+)\s*(?P<rest>(?:;|#|\\|--hash).*)?"
)
_DIRECT = re.compile(rf"(?P<name>{NAME})\s?(?:\[[^\]]*\])?\s?@\s?(?P<url>[a-z+]+:/\S+|/\S+)(?:\s.*)?")
_EDITABLE = re.compile(r"(?:-e|--editable)[ =](?P<what>\S.*)")
_EDITABLE_COMMENT = re.compile(rf"#+ .*\beditable\b.*\((?P<name>{NAME})===?(?P<version>[^\s)]+)\).*", re.IGNORECASE)
_EXPORTED = re.compile(rf"(?P<name>{NAME})=(?P<version>{VERSION})(?:=(?P<build>[A-Za-z0-9_.]+))?")
_UV_CHANGE = re.compile(rf"(?P<sign>[+~-]) (?P<name>{NAME})==(?P<version>\S+)(?: \(from (?P<url>\S+)\))?")
_LEGACY = re.compile(
    rf"(?P<name>{NAME}) \((?P<version>{VERSION})(?:, (?P<location>[^)]+))?\)(?: - Latest: \S+ \[\w+\])?"
)
_TREE = re.compile(rf"(?:[│├└─| `+\\-]*)(?P<name>{NAME})(?:\[[^\]]*\])? v(?P<version>{VERSION})(?: \(.*\))*")
_PIPDEPTREE = re.compile(rf"[│├└─ -]*(?P<name>{NAME}) \[required: [^\]]*?, installed: (?P<version>[^\s\]?]+)\]")
_SUCCESS = re.compile(r"(?P<verb>Successfully installed|Successfully uninstalled|Would install) (?P<what>\S.*)")
_FOUND = re.compile(rf"Found existing installation: (?P<name>{NAME}) (?P<version>\S+)")
_SATISFIED = re.compile(
    rf"Requirement already (?:satisfied|up-to-date)[^:]*: (?P<name>{NAME})\S*.*? in (?P<location>\S.*?)"
    rf"(?: \(from [^)]*\)+)*(?: \((?P<version>{VERSION})\))?"
)
_OBTAINING = re.compile(r"Obtaining (?P<url>file://\S+|[a-z]+\+\S+)")
_METADATA_FOLDER = re.compile(rf"- (?P<folder>\S*/)(?P<name>{NAME}?)-(?P<version>\d[^/-]*)\.(?:dist|egg)-info")
"""`uv pip check` lists what is there twice."""
_ARCHIVE = re.compile(
    rf"(?P<name>{NAME}?)-(?P<version>(?:\d+!)?\d[^-]*?)(?:-[^-]+-[^-]+-[^-]+\.whl|-\d\w*-[^-]+-[^-]+-[^-]+\.whl"
    r"|\.tar\.gz|\.tar\.bz2|\.tar\.xz|\.zip|\.tgz)"
)


def read_row(row: Row, before: Row | None, reading: PipReading) -> bool:
    """True: the row was one of these. `before`: the row above, which names what an `-e path` cannot."""
    for read in (_editable, _direct, _change, _exported, _pinned, _message, _legacy_or_tree):
        if read(row, before, reading):
            return True
    return False


def from_url(url: str) -> PipPackage:
    """What a URL or path tells by itself: source, location, commit, subdirectory, and a wheel's name and version."""
    bare, _, fragment = url.partition("#")
    facts = dict(part.split("=", 1) for part in fragment.split("&") if "=" in part)
    control = re.match(r"(git|hg|svn|bzr)\+", bare)
    commit: str | None = None
    if control:
        scheme, separator, rest = bare.partition("://")
        path, at, tail = rest.rpartition("@")
        if at and "/" in path and "/" not in path[path.rindex("/") + 1 :]:
            bare, commit = f"{scheme}{separator}{path}", tail
    location = unquote(bare)
    foreign = bool(re.match(r"(?:file:/*)?[A-Za-z]:[\\/]|(?:file:)?\\\\", location))
    is_file = location.startswith("file:") or "://" not in location
    if is_file:
        path = re.sub(r"^file:(?://(?:localhost)?(?=/))?", "", location)
        location = path.lstrip("/") if foreign else path
    archive = _ARCHIVE.fullmatch(re.split(r"[/\\]", location)[-1])
    source = control.group(1) if control else ("file" if archive else "folder") if is_file else "url"
    named = facts.get("egg") or (archive["name"] if archive else None)
    version = archive["version"] if archive else None
    return PipPackage(
        name=re.sub(r"\[.*", "", named) if named else None,
        version=version.replace("_", "+") if version and "+" not in version else version,
        source=source,
        location=location,
        commit=commit,
        subdirectory=facts.get("subdirectory"),
        foreign_path=foreign or None,
    )


def _editable(row: Row, before: Row | None, reading: PipReading) -> bool:
    match = _EDITABLE.fullmatch(row.text)
    if not match:
        return False
    what = match["what"].strip()
    direct = re.match(rf"(?P<name>{NAME})\s@\s(?P<url>\S+)", what)
    package = from_url(re.sub(r"\s+#.*", "", direct["url"] if direct else what))
    comment = _EDITABLE_COMMENT.fullmatch(before.text) if before else None
    name: str | None = direct["name"] if direct else package.name
    version: str | None = None
    whole = placed(replace(package, name=name, version=version, editable=True), row)
    if comment and before:
        named = placed(PipPackage(comment["name"], comment["version"]), before)
        whole = replace(whole, name=named.name, version=named.version, spans={**whole.spans, **named.spans})
    _keep(reading, row, whole)
    return True


def _direct(row: Row, before: Row | None, reading: PipReading) -> bool:
    match = _DIRECT.fullmatch(row.text)
    if not match:
        return False
    package = from_url(match["url"])
    _add(reading, row, replace(package, name=match["name"]))
    return True


def _change(row: Row, before: Row | None, reading: PipReading) -> bool:
    match = _UV_CHANGE.fullmatch(row.text)
    if not match:
        return False
    change = {"+": "installed", "-": "removed", "~": "reinstalled"}[match["sign"]]
    package = from_url(match["url"]) if match["url"] else PipPackage(None, None)
    _add(reading, row, replace(package, name=match["name"], version=match["version"], change=change))
    return True


def _exported(row: Row, before: Row | None, reading: PipReading) -> bool:
    match = _EXPORTED.fullmatch(row.text)
    if match and not match["build"]:  # `conda env export --no-builds`; elsewhere it is a variable's assignment
        if before is None or not (_EXPORTED.fullmatch(before.text) or before.text == "dependencies:"):
            return False
        _add(reading, row, PipPackage(match["name"], match["version"], source="conda"))
    elif match:
        source = "pypi" if match["build"].startswith("pypi") else "conda"
        _add(reading, row, PipPackage(match["name"], match["version"], source=source, build=match["build"]))
    return bool(match)


def _pinned(row: Row, before: Row | None, reading: PipReading) -> bool:
    match = _PINNED.fullmatch(row.text)
    if match:
        _add(reading, row, PipPackage(match["name"], match["version"]))
    return bool(match)


def _message(row: Row, before: Row | None, reading: PipReading) -> bool:
    if match := _SUCCESS.fullmatch(row.text):
        change = {"installed": "installed", "uninstalled": "removed", "install": None}[match["verb"].split()[1]]
        if change is not None:  # what would be done is not there
            for word in re.finditer(r"\S+", match["what"]):
                name, dash, version = word[0].rpartition("-")
                if dash and re.match(r"v?\d", version):
                    if change == "removed":  # `Found existing installation` above told of the same one
                        reading.packages[:] = [one for one in reading.packages if not _same(one, name, version)]
                    at = row.find(word[0]) or row.span
                    part = Row(word[0], row.piece.cut(at.start - row.piece.start, at.end - row.piece.start))
                    _add(reading, part, PipPackage(name, version, change=change))
        return True
    if match := _FOUND.fullmatch(row.text):
        _add(reading, row, PipPackage(match["name"], match["version"]))
        return True
    if match := _SATISFIED.fullmatch(row.text):
        _add(reading, row, PipPackage(match["name"], match["version"], location=match["location"]))
        return True
    if match := _METADATA_FOLDER.fullmatch(row.text):
        _add(reading, row, PipPackage(match["name"], match["version"], location=match["folder"].rstrip("/")))
        return True
    return bool(_OBTAINING.fullmatch(row.text))


def _same(package: PipPackage, name: str, version: str) -> bool:
    return (package.name, package.version, package.change) == (name, version, None)


def _legacy_or_tree(row: Row, before: Row | None, reading: PipReading) -> bool:
    if match := _LEGACY.fullmatch(row.text):
        location = match["location"]
        _add(
            reading,
            row,
            PipPackage(match["name"], match["version"], location=location, editable=bool(location) or None),
        )
        return True
    match = _TREE.fullmatch(row.text) or _PIPDEPTREE.fullmatch(row.text)
    if match:
        _add(reading, row, PipPackage(match["name"], match["version"]))
    return bool(match)


def _add(reading: PipReading, row: Row, package: PipPackage) -> None:
    _keep(reading, row, placed(package, row))


def _keep(reading: PipReading, row: Row, package: PipPackage) -> None:
    reading.packages.append(package)
    if package.foreign_path:
        name = package.name or "a package"
        meaning = (
            f"{name} came from a folder of a Windows machine, {package.location}: its version is not said, and it"
            " cannot be installed from there"
        )
        way_out = f"name a version or an index for {package.name or 'it'}"
        reading.findings.append(trouble(row, "foreign_path", meaning, package.name, way_out=way_out))
