"""Why an import failed: what is missing or does not fit, which package to see to, and which error was the first.

Reads a traceback, a chain of them, a line of the dynamic linker or of ldd; whole or cut out.
Rule: pure; of a chain of errors the first is the cause, and a wrapper's text is never taken for it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from orchestrator.probes.finding import finding_at
from orchestrator.probes.import_facts import ImportFailures, ImportTrouble, MissingLibrary
from orchestrator.probes.import_signs import SIGNS, Judgement, shadowed
from orchestrator.probes.libraries import major_of
from orchestrator.probes.spans import NO_SPANS, Piece, Span, Value, lines_of

MAX_CHARACTERS = 4_000_000
MAX_LINE = 4096
_TRACEBACK = re.compile(r"^(?:.*\s)?Traceback \(most recent call last\)")
_FRAME = re.compile(r'\s*File "[^"]*", line \d+')
_ERROR = re.compile(r"(?:^|[\s:|\]])(?:[A-Za-z_]\w*\.)*[A-Z]\w+(?:: |\s*$)")
_IN_TORCH = (
    re.compile(r"[/\\]torch[/\\]__init__\.py\", line \d+"),
    re.compile(r"from torch\._C import"),
    re.compile(r"-packages/torch/lib/[\w./+-]+: (?:undefined symbol|version|symbol)"),
)
_NO_ATTRIBUTE = re.compile(r"AttributeError: module ['\"](?P<module>\w+)['\"] has no attribute ['\"](?P<name>\w+)['\"]")
_GROUPS = ("library", "file", "symbol", "version", "module", "name", "path", "wanted", "found")


def read_import_failure(text: str) -> ImportFailures:
    text = text[:MAX_CHARACTERS]
    cuda = cuda_major_in(text)
    lines = lines_of(text)
    found: list[ImportTrouble] = []
    shadows: dict[str, re.Match[str] | None] = {}
    for at, line in enumerate(lines):
        if at and _is_source(lines[at - 1].text, line.text):
            continue  # a line of source: `raise ImportError("No module named ...")` is no failure
        trouble = trouble_in(line, cuda) or _shadow_of_a_frame(line, text, shadows)
        if trouble is not None and not any(_same(trouble, other) for other in found):
            found.append(trouble)
    cut = _cut_off(lines)
    if cut is not None:
        found.append(cut)
    torch = next((match for sign in _IN_TORCH if (match := sign.search(text))), None) if found else None
    return ImportFailures(
        _missing(found),
        _roles(found),
        False if torch else None,
        spans={"torch_importable": Span(*torch.span())} if torch else NO_SPANS,
    )


def trouble_in(line: Piece, cuda: int | None = None) -> ImportTrouble | None:
    """What one line says; None: nothing that is known here."""
    text = line.text[:MAX_LINE]
    for sign in SIGNS:
        match = sign.pattern.search(text)
        if match is None:
            continue
        groups = {name: value for name, value in match.groupdict().items() if value}
        places = {name: line.place(match, name) for name in groups}
        for spelling in ("other", "third"):  # a sentence that is worded in several ways
            if spelling in groups:
                groups["module"], places["module"] = groups[spelling], places[spelling]
        whole = line.place(match)
        return _told(line, sign.judge(groups, cuda), groups, places, whole)
    return None


def _shadow_of_a_frame(line: Piece, text: str, known: dict[str, re.Match[str] | None]) -> ImportTrouble | None:
    """`module 'dis' has no attribute ...` is a failed import only when a file of the run, dis.py, stands in for it.
    known: the frames that were looked for before, by module."""
    match = _NO_ATTRIBUTE.search(line.text[:MAX_LINE])
    if match is None:
        return None
    if match["module"] not in known:
        known[match["module"]] = _own_frame(match["module"], text)
    frame = known[match["module"]]
    if frame is None:
        return None
    groups = {"module": match["module"], "name": match["name"], "path": frame["path"]}
    places = {name: line.place(match, name) for name in ("module", "name")}
    places["path"] = Span(*frame.span("path"))
    return _told(line, shadowed(groups, None), groups, places, line.place(match))


def _own_frame(module: str, text: str) -> re.Match[str] | None:
    for frame in re.finditer(rf'File "(?P<path>[^"\n]*?{module}\.py)"', text):
        path = frame["path"]
        if path.rsplit("/", 1)[-1] == f"{module}.py" and not re.search(r"-packages/|/lib(?:64)?/python\d", path):
            return frame
    return None


def _told(
    line: Piece, judgement: Judgement, groups: dict[str, str], places: dict[str, Span], whole: Span
) -> ImportTrouble:
    named = {name: Value(groups[name], places[name]) for name in _GROUPS if name in groups}
    if "by" in groups:
        named["file"] = Value(groups["by"], places["by"])
    if judgement.library and "library" not in named:
        named["library"] = Value(judgement.library, places.get("version", places.get("symbol", whole)))
    if judgement.package:
        at = places.get("library") or places.get("by") or places.get("file") or places.get("module")
        at = at or places.get("wanted") or whole
        named["package"] = Value(judgement.package, at)
    told = finding_at(line, judgement.kind, judgement.way_out, named, whole)
    return ImportTrouble(told.kind, told.said, told.named, told.way_out, judgement.meaning, spans=told.spans)


def cuda_major_in(text: str) -> int | None:
    """The CUDA that torch was built for, as far as the text gives it away; None: it does not, or two are named."""
    said = {int(found) for found in re.findall(r"(?:\+|[^\w])cu(1[1-9])\d?\b", text)}
    if not said:
        sonames = (major_of(name) for name in re.findall(r"lib\w+\.so\.\d+", text))
        said = {major for major in sonames if major is not None}
    if not said and re.search(r"python3\.[6-9]\b", text):
        return 12  # the last torch for Python 3.9 is 2.8, and CUDA 13 came with 2.9
    return said.pop() if len(said) == 1 else None


def _same(one: ImportTrouble, other: ImportTrouble) -> bool:
    """A process group says everything once a rank."""
    return one.kind == other.kind and {n: v.value for n, v in one.named.items()} == {
        n: v.value for n, v in other.named.items()
    }


def _missing(found: list[ImportTrouble]) -> tuple[MissingLibrary, ...]:
    missing: dict[str, MissingLibrary] = {}
    for trouble in found:
        if trouble.kind not in ("library_missing", "driver_library_missing"):
            continue
        library, package = trouble.named["library"], trouble.named.get("package")
        name = str(library.value).rsplit("/", 1)[-1]
        spans = {"library": library.span, **({"package": package.span} if package else {})}
        missing.setdefault(name, MissingLibrary(name, str(package.value) if package else None, spans=spans))
    return tuple(missing.values())


def _roles(found: list[ImportTrouble]) -> tuple[ImportTrouble, ...]:
    told, seen = [], False
    for trouble in found:
        if trouble.kind in ("wrapper", "cut_off"):
            told.append(replace(trouble, role="wrapper" if trouble.kind == "wrapper" else "further"))
        else:
            told.append(replace(trouble, role="further" if seen else "cause"))
            seen = True
    return tuple(told)


def _is_source(before: str, text: str) -> bool:
    """The row is the frame's line of source: it stands deeper than the frame. (Of `<string>` and `<frozen ...>` there
    is none: the exception may follow at once.)"""
    frame = _FRAME.search(before)
    if frame is None:
        return False
    beside = text[frame.start() :]  # a rank's or a clock's prefix is as long in each row
    return len(beside) - len(beside.lstrip()) > before.index("File", frame.start()) - frame.start()


def _cut_off(lines: list[Piece]) -> ImportTrouble | None:
    """The last traceback has no last line: whoever captured it stopped too early."""
    opened: Piece | None = None
    before = ""
    for line in lines:
        if _TRACEBACK.match(line.text):
            opened = line
        elif opened is not None and _ERROR.search(line.text) and not _FRAME.search(line.text):
            opened = opened if _is_source(before, line.text) else None
        before = line.text
    if opened is None:
        return None
    told = finding_at(opened, "cut_off", "orch logs --traceback   shows it whole")
    meaning = "the text ends within a traceback: what failed last is not in it"
    return ImportTrouble(told.kind, told.said, told.named, told.way_out, meaning, spans=told.spans)
