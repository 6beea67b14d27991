"""An inventory, or another YAML file, as the strict loader reads it: every value, every mistake with its way out.

Rule: the loader's own code decides; here its lines and columns become places in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.inventory.loader import MAX_BYTES
from orchestrator.inventory.mistakes import Mistake, MistakeError, Position
from orchestrator.inventory.read import find_mistakes
from orchestrator.inventory.yaml_values import Places, dotted
from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Located, Piece, Span, Value, said_lines

# What a sentence of the loader is about; the first that is found.
_KINDS = (
    ("tab_indentation", "a tab character"),
    ("odd_indentation", "in the indentation is no space"),
    ("leading_zero", "has a leading zero"),
    ("base_60", "in base 60"),
    ("decimal_mode", "not the file mode"),
    ("ini_pair", "found the text `[A-Za-z_][A-Za-z0-9_]*="),
    ("ini_file", "this is an INI file"),
    ("tag", "tags \\("),
    ("indirection", "anchors|aliases|merge keys"),
    ("duplicate_key", "the key stands twice"),
    ("boolean_word", "true or false to others"),
    ("date", "is a date"),
    ("unclear_number", "a number to some readers|not a number|number is too l"),
    ("key_is_no_name", "the key `"),
    ("no_value", "there is no value"),
    ("empty", "the file is empty"),
    ("syntax", "could not find expected|cannot be read as YAML|this is not YAML|a second document|nested too deeply"),
    ("bad_character", "the character"),
)
_TEXT_KEYS = {"fqdn", "hostname", "host", "address", "user", "session", "node", "name", "password"}
_TOKEN = re.compile(r"\"(?:[^\"\\\n]|\\.){0,400}\"|'(?:[^'\n]|''){0,400}'|[^\s,\[\]{}#:][^\s,\[\]{}]{0,400}|\S")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", re.DOTALL)
"""It may go on over several lines, and what it means be spelled otherwise: `''`, `\\t`, a line's end behind `\\`."""
_BLOCK = re.compile(r"[|>][^\r\n]{0,100}\s+")
_INDIRECT = re.compile(r"\s*(?:!\S{0,400}|&[\w-]{0,400})")
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""As YAML counts lines."""
_INI_SECTION = re.compile(r"\[[^\]\n]{0,200}\]")


@dataclass(frozen=True)
class InventoryReading(Located):
    values: Mapping[str, Value]
    """Path -> what it means. None: the loader refuses to guess."""
    findings: tuple[Finding, ...]
    """What is wrong with it as YAML that every reader takes alike."""
    schema: tuple[Finding, ...]
    """What is wrong with it as an inventory of orch's."""
    ini_hosts: tuple[Value, ...] = ()
    """Of a file that is INI: the first word of its lines."""


def read_inventory_text(text: str) -> InventoryReading:
    begin = 1 if text.startswith("\ufeff") else 0
    clean = text[begin:].replace("\r\n", " \n")  # as long as before
    if len(clean) > MAX_BYTES:
        return InventoryReading({}, (finding_at(Piece(text[:80], 0), "too_large", "an inventory is smaller"),), ())
    lines = _Lines(clean, begin)
    findings = [finding_at(Piece(text[0], 0), "byte_order_mark", "save it as plain UTF-8")] if begin else []
    try:
        values, places, of_yaml, of_schema = find_mistakes(clean)
    except MistakeError as error:
        found = lines.finding(error.mistake)
        hosts = tuple(_ini_hosts(clean, begin)) if found is not None and found.kind == "ini_file" else ()
        return InventoryReading({}, (*findings, *([found] if found else [])), (), hosts)
    leaves = dict(_leaves(values, places, lines))
    findings += _known(lines.finding(mistake) for mistake in sorted(set(of_yaml), key=_place))
    findings += _numbers_for_text(leaves, text)
    schema = _known(lines.finding(mistake) for mistake in sorted(set(of_schema), key=_place))
    return InventoryReading(leaves, tuple(findings), tuple(schema))


def _place(mistake: Mistake) -> tuple[Position, str]:
    return mistake.position or Position(1, 1), mistake.said


def _known(found: Iterable[Finding | None]) -> list[Finding]:
    return [finding for finding in found if finding is not None]


class _Lines:
    """Line and column -> the word that begins there."""

    def __init__(self, text: str, begin: int) -> None:
        self._text = text
        self._begin = begin
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]

    def word(self, position: Position) -> Piece | None:
        """None: nothing is written from there on."""
        at = self._at(position)
        return None if at is None else self._token(at)

    def value(self, position: Position) -> Piece | None:
        """Behind its tag or anchor."""
        at = self._at(position)
        if at is None:
            return None
        while (indirect := _INDIRECT.match(self._text, at)) is not None:
            at = indirect.end()
        return self._token(at)

    def _at(self, position: Position) -> int | None:
        """YAML counts a byte order mark as no column, wherever it stands."""
        if position.line > len(self._starts):
            return None
        begin = self._starts[position.line - 1]
        at = begin + position.column - 1
        while (marks := self._text.count("\ufeff", begin, at)) != at - begin - (position.column - 1):
            at = begin + position.column - 1 + marks
        return at

    def _token(self, at: int) -> Piece | None:
        found = _TOKEN.search(self._text, at)
        return None if found is None else Piece(found[0].rstrip(":") or found[0], self._begin + found.start())

    def words(self, text: str, at: int) -> Span | None:
        """Where a text that begins at `at` ends, perhaps on another line; behind `>` or `|` it begins on the next."""
        if (quoted := _QUOTED.match(self._text, at - self._begin)) is not None:
            return Span(self._begin + quoted.start(), self._begin + quoted.end())
        if (block := _BLOCK.match(self._text, at - self._begin)) is not None:
            at = self._begin + block.end()
        pattern = r"\s+".join(map(re.escape, text[:2000].split()))
        found = re.compile(pattern).match(self._text, at - self._begin) if text.split() else None
        return None if found is None else Span(self._begin + found.start(), self._begin + found.end())

    def finding(self, mistake: Mistake) -> Finding | None:
        position = mistake.position or Position(1, 1)
        begin = self._starts[min(position.line, len(self._starts)) - 1]
        end = self._text.find("\n", begin)
        line = Piece(self._text[begin : len(self._text) if end < 0 else end], self._begin + begin).strip()
        word = self.word(position)
        if not line.text:
            line = word or Piece("", 0)
        if not line.text:
            return None
        if word is None or not line.start <= word.start < line.span.end:
            word = line
        kind = next((kind for kind, words in _KINDS if re.search(words, mistake.said)), "schema")
        named = {"line": Value(position.line, word.span), "column": Value(position.column, word.span)}
        if mistake.path:
            named["path"] = Value(mistake.path, word.span)
        sentence = f"{mistake.said}: {mistake.write}" if mistake.write else mistake.said
        return finding_at(line, kind, sentence, named, word.span)


def _leaves(values: object, places: Places, lines: _Lines) -> Iterator[tuple[str, Value]]:
    def walk(value: object, path: tuple[str | int, ...]) -> Iterator[tuple[str, Value]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, (*path, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, (*path, index))
        else:
            position = places.values.get(path)
            word = None if position is None else lines.value(position)
            if word is not None and word.text and (value is None or isinstance(value, str | int | float | bool)):
                yield dotted(path), Value(value, _span(word, value, lines))

    yield from walk(values, ())


def _span(word: Piece, value: object, lines: _Lines) -> Span:
    """A plain text ends where it ends, whatever its words are made of."""
    return (lines.words(value, word.start) if isinstance(value, str) else None) or word.span


def _numbers_for_text(leaves: Mapping[str, Value], text: str) -> Iterator[Finding]:
    """`fqdn: 1234`: a number where a name belongs."""
    for path, leaf in leaves.items():
        key = path.rpartition(".")[2]
        if key in _TEXT_KEYS and isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool):
            way_out = f'write "{leaf.value}" in quotes if it is text'
            named = {"path": Value(path, leaf.span)}
            spans = {"kind": leaf.span, "said": leaf.span}
            yield Finding("number_for_text", leaf.span.of(text), named, way_out, spans=spans)


def _ini_hosts(text: str, begin: int) -> Iterator[Value]:
    for line in said_lines(text):
        words = line.strip()
        if words.text != "---" and not _INI_SECTION.match(words.text) and words.text[0] not in "#;":
            name = words.text.split()[0].split("=")[0]
            if name:
                yield Value(name, Span(begin + words.start, begin + words.start + len(name)))
