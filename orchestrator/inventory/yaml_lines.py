"""YAML text as nodes that know their place, without the parts of YAML that surprise people.

Rule: pure. One document, no anchors, aliases, merge keys or tags, no key twice, no tabs as indentation; each is refused
with its line. What a plain word means is decided in `yaml_values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from orchestrator.inventory.mistakes import Mistake, MistakeError, Position, printable

MAX_DEPTH = 20
_INI_SECTION = re.compile(r"\[[^\[\]{},\"']*\]\s*([#;].*)?")


@dataclass(frozen=True)
class Scalar:
    text: str
    plain: bool
    """Written without quotes: what it means is open."""
    position: Position


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]
    position: Position


@dataclass(frozen=True)
class Mapping:
    entries: tuple[tuple[Scalar, Node], ...]
    position: Position


Node = Scalar | Sequence | Mapping


INVENTORY = "`hosts:` and, below it, the hosts"


def compose(text: str, begins: str = INVENTORY) -> tuple[Mapping, list[Mistake]]:
    """The document, and what in it is refused. begins: what such a file holds, for whoever wrote something else.
    Raises MistakeError when there is nothing to go on with."""
    _refuse_other_formats(text, begins)
    _refuse_tabs(text)
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        composer = _Composer(events)
        root = composer.document()
    except yaml.reader.ReaderError as error:
        raise _unreadable_character(text, error) from error
    except yaml.MarkedYAMLError as error:
        raise _syntax_mistake(text, error) from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise MistakeError(None, "", f"this is not YAML: {printable(str(error))}") from error
    if not isinstance(root, Mapping):
        raise MistakeError(root.position, "", "the file must be a mapping", f"write {begins}")
    return root, composer.mistakes


def _content_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip().strip("\ufeff")  # of byte order marks alone YAML makes no document
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _refuse_other_formats(text: str, begins: str) -> None:
    content = list(_content_lines(text))
    if not content or all(line in ("---", "...") for _, line in content):
        raise MistakeError(None, "", "the file is empty", f"write {begins}")
    number, first = next(((n, line) for n, line in content if line != "---"), content[0])
    if _INI_SECTION.fullmatch(first) or first.startswith(";"):
        raise MistakeError(
            Position(number, 1),
            "",
            "this is an INI file, not YAML",
            f"write it as YAML: {begins}",
        )


def _refuse_tabs(text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        indentation = line[: len(line) - len(line.lstrip())]
        odd = next((character for character in indentation if character not in " \t\r"), None)
        if odd is not None and line.strip():
            said = f"the blank {odd!r} in the indentation is no space"
            raise MistakeError(Position(number, indentation.index(odd) + 1), "", said, "use spaces")
        if "\t" in indentation and line.strip():
            raise MistakeError(
                Position(number, indentation.index("\t") + 1), "", "a tab character in the indentation", "use spaces"
            )


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)


def _unreadable_character(text: str, error: yaml.reader.ReaderError) -> MistakeError:
    before = text[: error.position]
    position = Position(before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1)
    character = text[error.position : error.position + 1]
    return MistakeError(position, "", f"the character {character!r} may not stand in YAML", "remove it")


_GLUED = re.compile(r"\s*(?P<key>[A-Za-z_][\w.-]{0,80}):(?P<value>[^\s:]\S{0,200})\s*")


def _syntax_mistake(text: str, error: yaml.MarkedYAMLError) -> MistakeError:
    """YAML notices late: name the place that it began with, and the bare word there if there is one."""
    noticed = _position(error.problem_mark)
    began = _position(error.context_mark) if error.context_mark else noticed
    lines = text.split("\n")
    problem = error.problem or "syntax error"
    word = lines[began.line - 1].strip() if began.line <= len(lines) else ""
    if "could not find expected ':'" in problem and word:
        return MistakeError(
            began,
            "",
            f"could not find expected `:` after the bare word `{printable(word)}` (noticed on line {noticed.line})",
            f"write `{printable(word)}:` if it is a key",
        )
    said = f"cannot be read as YAML: {problem}"
    if began != noticed:
        said += f" ({error.context}, noticed on line {noticed.line})"
    if problem.startswith("expected <block end>"):
        return MistakeError(noticed, "", said, "look at this line's indentation, or at a quote that ends too early")
    if "mapping values are not allowed" in problem:
        before = lines[noticed.line - 2] if noticed.line > 1 else ""
        if (glued := _GLUED.fullmatch(before)) is not None:
            return MistakeError(
                Position(noticed.line - 1, glued.end("key") + 1),
                "",
                f"cannot be read as YAML: there is no space after the colon of `{printable(glued['key'])}` "
                f"(noticed on line {noticed.line})",
                f"write `{printable(glued['key'])}: {printable(glued['value'])}`",
            )
        return MistakeError(
            noticed, "", said, "put the value in quotes, or look at the indentation of this line and the one above"
        )
    return MistakeError(began, "", said, "the cause may be on this line or above it: look for a missing colon or quote")


class _Composer:
    """Builds nodes from the parser's events. Own code because the library's composer resolves aliases silently."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self.mistakes: list[Mistake] = []

    def _refuse(self, position: Position, path: str, said: str, write: str = "") -> None:
        self.mistakes.append(Mistake(position, path, said, write))

    def document(self) -> Node:
        next(self._events)  # the stream's start
        next(self._events)  # the document's start
        root = self._node(next(self._events), "", 0)
        next(self._events)  # the document's end
        after = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            raise MistakeError(
                _position(after.start_mark), "", "a second document begins here", "keep one `---` at most"
            )
        return root

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        position = _position(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(position, path, f"aliases (`*{event.anchor}`) are not used here", "write the value out")
            return Scalar("", False, position)
        self._refuse_indirection(event, position, path)
        if depth > MAX_DEPTH:
            raise MistakeError(position, path, "nested too deeply")
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_characters(event.value, position, path)
            return Scalar(event.value, event.style is None, position)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event, f"{path}[{len(items)}]", depth + 1))
            return Sequence(tuple(items), position)
        return self._mapping(position, path, depth)

    def _mapping(self, position: Position, path: str, depth: int) -> Mapping:
        entries: list[tuple[Scalar, Node]] = []
        seen: dict[str, Position] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            if not isinstance(key, Scalar):
                raise MistakeError(key.position, path, "a key must be one word", "write `key: value`")
            if key.plain and key.text == "<<":
                self._refuse(key.position, path, "merge keys (`<<`) are not used here", "write the values out")
                self._node(next(self._events), path, depth + 1)
                continue
            if key.text in seen:
                self._refuse(
                    key.position,
                    f"{path}.{key.text}".lstrip("."),
                    f"the key stands twice (first on line {seen[key.text].line})",
                    "remove one of them",
                )
            seen[key.text] = key.position
            entries.append(
                (key, self._node(next(self._events), f"{path}.{printable(key.text)}".lstrip("."), depth + 1))
            )
        return Mapping(tuple(entries), position)

    def _refuse_indirection(self, event: yaml.Event, position: Position, path: str) -> None:
        anchor = getattr(event, "anchor", None)
        if anchor:
            self._refuse(position, path, f"anchors (`&{anchor}`) are not used here", "write each value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            shown = printable(tag.replace("tag:yaml.org,2002:", "!!"))
            self._refuse(position, path, f"tags (`{shown}`) are not used here", "remove it; quote what is text")

    def _refuse_characters(self, value: str, position: Position, path: str) -> None:
        for character in value:
            code = ord(character)
            if (code < 32 and character not in "\n\t") or code == 127 or 0xD800 <= code < 0xE000:
                self._refuse(position, path, f"the value holds the character {character!r}", "remove it")
                return
