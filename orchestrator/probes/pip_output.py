"""Which packages a piece of pip's, uv's or conda's output names, and what is wrong with them.

Reads list, freeze, check, install, uninstall, show, inspect (and their JSON), uv's change lines, conda and mamba
tables, requirements and locks; whole or cut out, with banners, prompts and warnings between.
Rule: pure; every fact carries the span of the text it was read from.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

from orchestrator.probes.pip_facts import PipOutput, PipPackage, PipReading, PipTrouble, Row, normalise, trouble
from orchestrator.probes.pip_rows import from_url, read_row
from orchestrator.probes.pip_tables import Table
from orchestrator.probes.pip_trouble import read_trouble
from orchestrator.probes.spans import NO_SPANS, Span, lines_of
from orchestrator.probes.text import plain_text
from orchestrator.probes.values import as_mapping, as_str

REACH_CHARACTERS = 256 * 1024
"""So far from its begin an item's words are looked for: its description may be long."""
MAX_CHARACTERS = 4_000_000
FALSE_STARTS = 1000
"""So many brackets that begin no JSON are looked at: json counts the lines before each, to say where it is wrong."""
_JSON_START = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
_SHOWN = re.compile(r"(?P<field>Name|Version|Location|Editable project location): ?(?P<value>.*)")


def read_pip_output(text: str) -> PipOutput:
    """Facts in the order of the text. What is beyond MAX_CHARACTERS is not read."""
    text = text[:MAX_CHARACTERS]
    reading = PipReading()
    documents = list(_documents(text, reading))
    rows = [row for row in rows_of(text) if not _is_within(row.span.start, documents)]
    rows = [_bare(row, in_export) for row, in_export in zip(rows, _exported(rows, text), strict=True)]
    table = Table()
    shown: dict[str, Row] = {}
    for at, row in enumerate(rows):
        field = _SHOWN.fullmatch(row.text)
        if field and (field["field"] == "Name" or shown):
            _finish_shown(shown, field["field"], row, reading)
            continue
        if _of_an_index(rows, at, reading):
            continue
        before = rows[at - 1] if at else None
        # Complaints first: `a 1.0 requires b` must not be read as a row of a table.
        _ = read_trouble(row, reading) or read_row(row, before, reading) or table.read(rows, at, reading)
    _show(shown, reading)
    reading.findings = [each for each in reading.findings if not _was_overcome(each, reading.packages)]
    reading.findings += _mixed(reading.packages, text)
    return PipOutput(
        tuple(sorted(reading.packages, key=_begin)),
        tuple(sorted(reading.findings, key=_begin)),
        True if reading.said_fine else None,
        spans={"said_fine": reading.said_fine} if reading.said_fine else NO_SPANS,
    )


def _was_overcome(told: PipTrouble, packages: list[PipPackage]) -> bool:
    """pip tried again, and installed something after that."""
    later = (each.spans["change"].start for each in packages if each.change == "installed")
    return told.kind == "no_network" and "Retrying (Retry(" in told.said and max(later, default=0) > _begin(told).start


def _begin(fact: PipPackage | PipTrouble) -> Span:
    return min(fact.spans.values())


def rows_of(text: str) -> Iterator[Row]:
    """Every line; of one that was overwritten (`\\r`) the last state."""
    for line in lines_of(text):
        yield Row(plain_text(line.text).strip(), line.strip())


def _of_an_index(rows: list[Row], at: int, reading: PipReading) -> bool:
    """`pip index versions`: the first row is the newest there is; what is installed is said by itself."""
    below = rows[at + 1].text if at + 1 < len(rows) else ""
    if below.startswith("Available versions: ") or rows[at].text.startswith(("Available versions: ", "LATEST: ")):
        return True
    installed = re.fullmatch(r"INSTALLED: +(?P<version>\S+)", rows[at].text)
    named = re.match(r"(?P<name>\S+) \(", rows[at - 2].text) if installed and at >= 2 else None
    if installed is None or named is None:
        return False
    name = rows[at - 2].find(named["name"]) or rows[at - 2].span
    version = rows[at].find(installed["version"]) or rows[at].span
    package = PipPackage(named["name"], installed["version"], spans={"name": name, "version": version})
    reading.packages.append(package)
    return True


_CHANGES = re.compile(r"[+~] \S+==|(?:Uninstalled|Installed|Would (?:uninstall|install)) \d+ package")
_QUOTED = re.compile(r"(?:> )+")
_COLLECTED = re.compile(r"\[(?:pip\d*|conda|uv)\] +")
"""torch.utils.collect_env says so before each package."""


def _exported(rows: list[Row], text: str) -> Iterator[bool]:
    """In which rows a dash is a list's and removes nothing: `conda env export` has them under `dependencies:`, and
    others where nothing says that something was installed. uv puts one blank before its dash."""
    if not any(_CHANGES.match(row.text) or text[row.span.start - 2 : row.span.start] == "\n " for row in rows):
        yield from (True for _ in rows)
        return
    inside = False
    for row in rows:
        if row.text == "dependencies:":
            inside = True
        elif row.text and not row.text.startswith("- "):
            inside = False
        yield inside


def _bare(row: Row, in_export: bool) -> Row:
    match = (re.match(r"- +(?=\S+=)", row.text) if in_export else None) or _COLLECTED.match(row.text)
    match = match or _QUOTED.match(row.text)
    at = row.piece.text.find(match[0]) if match else -1
    if match is None or at < 0:
        return row
    start = at + match.end()
    return Row(row.text[match.end() :].strip(), row.piece.cut(start, len(row.piece.text)).strip())


def _finish_shown(shown: dict[str, Row], field: str, row: Row, reading: PipReading) -> None:
    if field == "Name":
        _show(shown, reading)
        shown.clear()
    shown[field] = row


def _show(shown: Mapping[str, Row], reading: PipReading) -> None:
    """One block of `pip show`."""
    if "Name" not in shown or "Version" not in shown:
        return

    def value(field: str) -> str | None:
        return shown[field].text.partition(":")[2].strip() or None if field in shown else None

    fields = {"name": "Name", "version": "Version", "location": "Location"}
    editable = value("Editable project location")
    if editable:
        fields.update(location="Editable project location", editable="Editable project location")
    spans = {
        name: shown[field].find(value(field) or "") or shown[field].span
        for name, field in fields.items()
        if value(field)
    }
    location = value(fields["location"])
    package = PipPackage(value("Name"), value("Version"), editable=True if editable else None, location=location)
    reading.packages.append(replace(package, spans=spans))


def _is_within(at: int, documents: list[Span]) -> bool:
    """documents: in their order, apart from each other."""
    before = bisect_right(documents, at, key=lambda span: span.start)
    return before > 0 and at < documents[before - 1].end


def _documents(text: str, reading: PipReading) -> Iterator[Span]:
    """JSON documents in the text: pip list, inspect and install --report, uv, conda."""
    decoder, at, false_starts = json.JSONDecoder(), 0, 0
    while false_starts < FALSE_STARTS and (match := _JSON_START.search(text, at)):
        start = match.end() - 1
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = match.end()
            false_starts += 1
            continue
        at = end
        if _document(value, text, start, reading):
            yield Span(start, end)


def _document(value: object, text: str, start: int, reading: PipReading) -> bool:
    items = value if isinstance(value, list) else None
    change = None
    if items is None:
        whole = as_mapping(value)
        listed = whole.get("installed", whole.get("install"))
        change = "installed" if "install" in whole else None
        items = listed if isinstance(listed, list) else None
    if items is None:
        return False
    cursor, found = start, 0
    for item in items:
        package = _item(as_mapping(item))
        if package is None or package.name is None:
            continue
        begin = cursor
        name = _find_pair(text, "name", package.name, cursor) or Span(start, start + 1)
        cursor = max(cursor, name.end)
        version = _find_pair(text, "version", package.version or "", name.end, 4096) or name
        # What is made out of several of its words stands around its name.
        others = {key: name for key in ("source", "editable", "location", "commit", "subdirectory", "build")}
        spans = {
            **others,
            **_places(as_mapping(item), text, begin),
            "name": name,
            "version": version,
            "change": name,
            "foreign_path": name,
        }
        reading.packages.append(replace(package, change=change, spans=spans))
        found += 1
    return found > 0 or not items


def _find_pair(text: str, key: str, value: str, start: int, reach: int | None = None) -> Span | None:
    """Where a JSON document holds `"key": "value"`: the value, without its quotes, escaped or as it is."""
    written = {re.escape(json.dumps(value, ensure_ascii=ascii_only)[1:-1]) for ascii_only in (True, False)}
    quoted = re.compile(rf'"{key}"\s*:\s*"({"|".join(sorted(written))})"')
    match = quoted.search(text, start, len(text) if reach is None else start + reach)
    return Span(*match.span(1)) if match else None


def _places(item: Mapping[str, object], text: str, begin: int) -> dict[str, Span]:
    """Where the item says what stands in words of its own. begin: behind the name of the item before it."""
    direct = as_mapping(item.get("direct_url")) or as_mapping(item.get("download_info"))
    said = (
        ("location", item, ("location", "editable_project_location")),
        ("location", direct, ("url",)),
        ("commit", as_mapping(direct.get("vcs_info")), ("commit_id",)),
        ("subdirectory", direct, ("subdirectory",)),
        ("build", item, ("build_string",)),
    )
    places = {}
    for field, holder, keys in said:
        for key in keys:
            value = as_str(holder.get(key))
            place = _find_pair(text, key, value, begin, REACH_CHARACTERS) if value else None
            if place is not None:
                places[field] = place
    return places


def _item(item: Mapping[str, object]) -> PipPackage | None:
    about = as_mapping(item.get("metadata")) or item
    name, version = as_str(about.get("name")), as_str(about.get("version"))
    if not name or version is None:
        return None
    direct = as_mapping(item.get("direct_url"))
    if not direct and item.get("is_direct") is True:
        direct = as_mapping(item.get("download_info"))
    url = as_str(direct.get("url"))
    if url is not None:
        control = as_mapping(direct.get("vcs_info"))
        prefix = f"{control.get('vcs')}+" if control else ""
        package = from_url(prefix + url)
        return replace(
            package,
            name=name,
            version=version,
            editable=as_mapping(direct.get("dir_info")).get("editable") is True or None,
            commit=as_str(control.get("commit_id")) or package.commit,
            subdirectory=as_str(direct.get("subdirectory")) or package.subdirectory,
        )
    editable = as_str(item.get("editable_project_location"))
    channel, build = as_str(item.get("channel")), as_str(item.get("build_string"))
    source = None if channel is None else "pypi" if channel == "pypi" else "conda"
    location = editable or as_str(item.get("location"))
    return PipPackage(name, version, source=source, editable=True if editable else None, location=location, build=build)


def _mixed(packages: list[PipPackage], text: str) -> list[PipTrouble]:
    """pip over conda: numpy of pip lies on numpy-base of conda, or one package is there from both."""
    conda = {package.key: package for package in packages if package.source == "conda"}
    found = []
    for package in packages:
        if package.source != "pypi" or package.name is None:
            continue
        for key in (package.key, f"{package.key}-base"):
            other = conda.get(key)
            if other is not None and (other.version != package.version or key == package.key):
                begin = _begin(package).start
                row = next(rows_of(text[begin:].partition("\n")[0]))
                row = replace(row, piece=row.piece._replace(start=begin + row.piece.start))
                meaning = f"{package.name} {package.version} of pip lies over {other.name} {other.version} of conda"
                way_out = f"conda install {package.name}={package.version}, or pip uninstall {normalise(package.name)}"
                found.append(trouble(row, "mixed", meaning, package.name, wanted=package.version, way_out=way_out))
    return found
