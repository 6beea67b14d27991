"""The document of `nvidia-smi -q -x` as elements whose texts know their places, whole, broken or cut.

Rule: the parser expands nothing and fetches nothing: a document that declares entities is refused at once. What stands
before the place where a document breaks off is kept; a break in one GPU costs that GPU's rest and no other GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Piece, said_lines

MAX_DEPTH = 32
MAX_ELEMENTS = 200_000
MAX_BREAKS = 64
ROOT = "nvidia_smi_log"
_CLOSING = f"</{ROOT}>"
_OWN = {"gpu", "mig_device", "process_info"}
_BEGIN = re.compile(rf"<\?xml|<{ROOT}\b|<gpu(?=[\s>])")
_A_GPU = re.compile(r"<gpu(?=[\s>])")
_NOT_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)"
)
"""What programs' names bring in, and XML has not. Replaced one by one, for the parser only: it would end there."""


@dataclass
class Element:
    """The document, a <gpu>, a <mig_device> or a <process_info>: its texts by path, where each stands, and the like of
    it inside."""

    name: str
    depth: int
    texts: dict[str, Piece] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """Paths of the elements in it that came to their ends: of others, parts may be missing."""
    inside: list[Element] = field(default_factory=list)
    whole: bool = False
    bus: Piece | None = None


@dataclass
class Document:
    top: Element
    findings: list[Finding]
    around: list[Piece]
    """Lines that are no XML: warnings stand before, behind and in it."""


def read_document(text: str) -> Document:
    """Of several, one after the other (`--loop`), all GPUs are the first's."""
    document = Document(Element(ROOT, 0), [], [])
    end = 0
    while (begin := _BEGIN.search(text, end)) is not None:
        document.around += _lines(text, end, begin.start())
        closing = text.find(_CLOSING, begin.start())
        end = len(text) if closing < 0 else closing + len(_CLOSING)
        _read_part(text, begin.start(), end, document)
        if any(finding.kind in _REFUSALS for finding in document.findings):
            return document
    document.around += _lines(text, end, len(text))
    return document


def _lines(text: str, begin: int, end: int) -> Iterator[Piece]:
    return (Piece(line.text, begin + line.start) for line in said_lines(text[begin:end]))


def _read_part(text: str, begin: int, end: int, document: Document) -> None:
    document.around += [line for line in _lines(text, begin, end) if "<" not in line.text and ">" not in line.text]
    headless = _A_GPU.match(text, begin) is not None
    if headless:
        document.findings.append(_finding(text, begin, "truncated"))
    for _ in range(MAX_BREAKS):
        parser = _Parser(text, begin, end, document.top, headless)
        broken = parser.parse()
        if broken is None:
            return
        place, kind = broken
        document.findings.append(_finding(text, place, kind))
        further = _A_GPU.search(text, max(place, begin + 1), end)
        if kind != "not_well_formed" or further is None:
            return
        begin, headless = further.start(), True


def _finding(text: str, place: int, kind: str) -> Finding:
    """With the line that it happened on, or the last one that has words."""
    begin = text.rfind("\n", 0, place) + 1
    line = Piece(text[begin : text.find("\n", place) % (len(text) + 1)], begin).strip()
    if not line.text:
        kept = text[:begin].rstrip()
        start = kept.rfind("\n") + 1
        line = Piece(kept[start:], start).strip()
    return finding_at(line, kind, _WAYS_OUT[kind])


class _Parser:
    """Expat's events, as elements whose texts know their places."""

    def __init__(self, text: str, begin: int, end: int, top: Element, headless: bool) -> None:
        """headless: begins with a <gpu>, so that the document's own tag is supplied."""
        self._text = text
        self._open: list[str] = []
        self._owners = [top]
        self._elements = 0
        self._places = _Places(_NOT_XML.sub("+", text[begin:end]), begin)
        self._head = f"<{ROOT}>".encode() if headless else b""
        self._content: int | None = None
        """Where the innermost element's tag begins, while it holds nothing but text."""
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = False
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def parse(self) -> tuple[int, str] | None:
        """Where and how it is broken."""
        data = self._head + self._places.data
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            index = self._parser.ErrorByteIndex
            early = error.code in _AT_THE_END or index >= len(data)
            return self._place(index), "truncated" if early else "not_well_formed"
        except _RefusedError as refused:
            return self._here(), str(refused.args[0])
        return None

    def _place(self, index: int) -> int:
        return self._places.character(max(index - len(self._head), 0))

    def _here(self) -> int:
        return self._place(self._parser.CurrentByteIndex)

    def _refuse_entity(self, *_: object) -> None:
        raise _RefusedError("entities_refused")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if len(self._open) >= MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise _RefusedError("too_large")
        self._open.append(name)
        if name in _OWN:
            self._start_own(name, attributes)
        self._content = self._here()

    def _start_own(self, name: str, attributes: Mapping[str, str]) -> None:
        """One in another of its name: that one's end is missing."""
        within = [owner.name for owner in self._owners]
        if name in within:
            del self._owners[within.index(name) :]
        element = Element(name, len(self._open))
        if "id" in attributes:
            element.bus = self._attribute(attributes["id"])
        if name == "gpu" or len(self._owners) > 1:
            self._owners[-1].inside.append(element)
        self._owners.append(element)

    def _attribute(self, value: str) -> Piece | None:
        start = self._here()
        place = self._text.find(value, start, start + 400)
        return None if place < 0 or not value else Piece(value, place)

    def _end(self, name: str) -> None:
        owner = self._owners[-1]
        path = "/".join(self._open[max(owner.depth, 1) :])
        if self._content is not None:
            self._keep_text(owner, path, self._content)
        self._content = None
        owner.closed.add(path)
        if len(self._open) == owner.depth and owner.depth:
            owner.whole = True
            self._owners.pop()
        self._open.pop()

    def _keep_text(self, owner: Element, path: str, tag: int) -> None:
        """The element held nothing but text: from the end of its tag to here."""
        begin = self._text.find(">", tag) + 1
        piece = Piece(self._text[begin : self._here()], begin).strip()
        if piece.text and path and "<" not in piece.text:
            owner.texts.setdefault(path, piece)


class _Places:
    """Expat counts bytes, spans count characters."""

    def __init__(self, body: str, begin: int) -> None:
        self.data = body.encode("utf-8", "replace")
        self._ascii = len(self.data) == len(body)
        self._begin = begin
        self._last = (0, 0)

    def character(self, index: int) -> int:
        if self._ascii:
            return self._begin + index
        byte, character = self._last if index >= self._last[0] else (0, 0)
        character += len(self.data[byte:index].decode("utf-8", "ignore"))
        self._last = (index, character)
        return self._begin + character


class _RefusedError(Exception):
    """Its argument is the finding's kind."""


_AT_THE_END = {
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}
_REFUSALS = ("entities_refused", "too_large")
_WAYS_OUT = {
    "truncated": "ask again, with more time: what is missing here is unknown, not 0",
    "not_well_formed": "look at the line: something else was written into the XML",
    "entities_refused": "nvidia-smi declares no entities: find out where this document comes from",
    "too_large": "nvidia-smi nests less and says less: find out where this document comes from",
}
