"""What a plain YAML word means, strictly: a word that different readers read differently is refused, never guessed.

Rule: pure. `plain_values` gives ordinary Python values and, beside them, the place of every key and value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.inventory.mistakes import Mistake, Position, printable
from orchestrator.inventory.yaml_lines import Mapping, Node, Scalar, Sequence

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DIGITS = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?")
_OTHER_BASE = re.compile(r"[-+]?0([xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)")
_UNDERSCORES = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAYBE_BOOLEAN = {"yes", "no", "on", "off", "true", "false"}
_FREE = ("variables", "settings")
_MODES = {"mode", "umask"}
_NULL = {"", "~", "null", "Null", "NULL"}


@dataclass
class Places:
    """Where each key and value stands, by path."""

    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)

    def of(self, path: Path) -> Position | None:
        """Of the value, or of the nearest thing around it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path)


def dotted(path: Path) -> str:
    """`hosts.gpu-box.command[0]`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{printable(step)}"
    return text.lstrip(".")


def plain_values(root: Node) -> tuple[object, Places, list[Mistake]]:
    """The value of the whole tree; words that cannot be read safely become mistakes (and None in the value)."""
    places, mistakes = Places(), []

    def read(node: Node, path: Path) -> object:
        places.values[path] = node.position
        if isinstance(node, Sequence):
            return [read(item, (*path, index)) for index, item in enumerate(node.items)]
        if isinstance(node, Mapping):
            return {key: read(child, (*path, key)) for key, child in keys_of(node, path)}
        value, wrong, write = read_scalar(node)
        if path and path[-1] in _MODES and isinstance(value, int) and re.fullmatch("[0-7]{3}", node.text):
            wrong, write = f"`{value}` is a decimal number, not the file mode {value}", f'write "0{value}", in quotes'
        if node.plain and _is_ini_pair(node.text, path):
            key, _, rest = node.text.partition("=")
            wrong, write = f"found the text `{printable(node.text)}`", f"write `{key}: {printable(rest)}`, with a colon"
        if wrong:
            mistakes.append(Mistake(node.position, dotted(path), wrong, write))
        return value

    def keys_of(node: Mapping, path: Path) -> Iterator[tuple[str, Node]]:
        for key, child in node.entries:
            places.keys[(*path, key.text)] = key.position
            value, wrong, _ = read_scalar(key)
            if wrong or not isinstance(value, str):
                said = wrong or f"the key `{printable(key.text)}` is {kind_of(value)}, not a name"
                mistakes.append(Mistake(key.position, dotted((*path, key.text)), said, _quoted(key.text)))
            yield key.text, child

    return read(root, ()), places, mistakes


def _is_ini_pair(text: str, path: Path) -> bool:
    """`key=value` where a value stands by itself. In a list, or where any text may stand, it can be meant."""
    free = isinstance(path[-1], int) or any(step in _FREE for step in path[2:-1])
    return not free and re.fullmatch(r"[A-Za-z_]\w*=[^=\s]\S*", text) is not None


def _quoted(text: str) -> str:
    return f'write "{printable(text)}" in quotes if it is text'


def read_scalar(scalar: Scalar) -> tuple[str | int | float | bool | None, str, str]:
    """(value, what is wrong, what to write); the last two are empty when all is well."""
    text = scalar.text
    if not scalar.plain:
        return text, "", ""
    if text in _NULL:
        return None, "there is no value", "write one, or remove the key"
    if text in ("true", "false"):
        return text == "true", "", ""
    if text.lower() in _MAYBE_BOOLEAN:
        return (
            None,
            f"`{text}` is text to some readers of YAML and true or false to others",
            (f'write true or false, or "{text}" in quotes if it is text'),
        )
    return _number_or_text(text)


def _number_or_text(text: str) -> tuple[str | int | float | None, str, str]:
    if _INTEGER.fullmatch(text):
        return int(text), "", ""
    if _DIGITS.fullmatch(text):
        digits = text.lstrip("+-")
        if len(digits) > 18 and digits[0] != "0":
            return None, "the number is too long", _quoted(text)
        bare = digits.lstrip("0") or "0"
        octal = f"octal ({int(digits, 8)})" if set(digits) <= set("01234567") and len(digits) < 19 else "text"
        return (
            None,
            f"`{printable(text)}` has a leading zero: some readers take it for {octal}",
            (f'write {printable(bare)} for the number, or "{printable(text)}" in quotes'),
        )
    if _SEXAGESIMAL.fullmatch(text):
        number = f" ({_base_60(text)})" if len(text) < 40 and "." not in text else ""
        return None, f"`{printable(text)}` is a number in base 60{number} to some readers of YAML", _quoted(text)
    if _OTHER_BASE.fullmatch(text) or _UNDERSCORES.fullmatch(text):
        return (
            None,
            f"`{printable(text)}` is a number to some readers of YAML and text to others",
            ("write plain decimal digits, or quote it"),
        )
    if _DATE.fullmatch(text):
        return None, f"`{printable(text)}` is a date to some readers of YAML", _quoted(text)
    if _NOT_A_NUMBER.fullmatch(text):
        return None, f"`{text}` is not a number that can be used", _quoted(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return (value, "", "") if math.isfinite(value) else (None, "the number is too large", _quoted(text))
    return text, "", ""


def _base_60(text: str) -> int:
    number = 0
    for part in text.lstrip("+-").split(":"):
        number = number * 60 + int(part)
    return -number if text.startswith("-") else number


def kind_of(value: object) -> str:
    """For messages: `the number 5`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text `{printable(value)}`"
    return "a list" if isinstance(value, list) else "a mapping"
