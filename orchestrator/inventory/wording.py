"""What the schema objects to, in words that say what to write.

Rule: pure; one pydantic error in, one Mistake out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from orchestrator.inventory import schema
from orchestrator.inventory.mistakes import Mistake, did_you_mean, printable
from orchestrator.inventory.yaml_values import Path, Places, dotted, kind_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_KEY = "[key]"
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
# A number is never right here, not even in quotes.
_NOT_NUMBERS = {"address", "user", "session"}
# Of a playbook: a number in quotes still says no unit.
_TIMES = {"deadline", "timeout", "wait", "within"}


def mistake_for(
    error: ErrorDetails, places: Places, fields_at: Callable[[Path], Sequence[str]] | None = None
) -> Mistake:
    """fields_at: the keys that may stand below a path; None: the inventory's."""
    path: Path = error["loc"]
    kind, value = error["type"], error["input"]
    if path and path[-1] == _KEY:
        path = path[:-1]
        return Mistake(places.keys.get(path), dotted(path), _plain(error["msg"]), "")
    if kind == "extra_forbidden":
        return _unknown_key(path, places, (fields_at or _fields_at)(path[:-1]))
    if kind == "missing":
        return Mistake(places.of(path[:-1]), dotted(path), "is missing", f"write `{path[-1]}:` and its value")
    said, write = _words(kind, value, path, error)
    return Mistake(places.of(path), dotted(path), said, write)


def _words(kind: str, value: object, path: Path, error: ErrorDetails) -> tuple[str, str]:
    context: Mapping[str, object] = cast("Mapping[str, object]", error.get("ctx") or {})
    if kind in _WANTED:
        return f"expected {_WANTED[kind]}, found {kind_of(value)}", _instead(kind, value, path)
    if kind == "list_type":
        return f"expected a list, found {kind_of(value)}", _as_list(value, path)
    if kind in ("dict_type", "model_type"):
        return f"expected a mapping, found {kind_of(value)}", _as_mapping(value)
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"{kind_of(value)} is not one of {', '.join(allowed)}", did_you_mean(str(value), allowed)
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        hint = "pct's container ids begin at 100" if path[-1] == "id" else ""
        return f"must be {words} {context.get(key)}, found {printable(str(value))}", hint
    if kind in ("string_too_short", "too_short"):
        return "must not be empty", ""
    return _plain(error["msg"]), ""


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")


def _instead(kind: str, value: object, path: Path) -> str:
    if kind == "string_type":
        if path[-1] in _NOT_NUMBERS or not isinstance(value, int | float):
            return ""
        if path[-1] in _TIMES and not isinstance(value, bool):
            return f"a time has a unit: write {value}s, {value}m or {value}h"
        shown = str(value).lower() if isinstance(value, bool) else value
        return f'write "{shown}" in quotes'
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return f"write {value} without quotes"
    return ""


def _as_list(value: object, path: Path) -> str:
    if not isinstance(value, str):
        return "write a list: [first, second]"
    if path[-1] in ("command", "warmup"):
        try:
            words = shlex.split(value)
        except ValueError:
            words = value.split()
    else:
        words = [word for word in re.split(r"[,\s]+", value) if word]
    return f"write [{', '.join(_yaml_word(word) for word in words)}]"


def _yaml_word(word: str) -> str:
    return (
        word if re.fullmatch(r"[A-Za-z_/.][A-Za-z0-9_/.-]*", word) else '"' + printable(word).replace('"', '\\"') + '"'
    )


def _as_mapping(value: object) -> str:
    if isinstance(value, str):
        pair = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)\s*([=:])\s*(\S.*)", value)
        if pair:
            return f"write `{pair[1]}: {printable(pair[3])}`, with a colon and a space"
        if re.search(r"[,\s]", value):
            return "write one entry for each, `NAME:` on a line of its own"
    return "write `key: value` lines below it"


def _unknown_key(path: Path, places: Places, known: Sequence[str]) -> Mistake:
    near = did_you_mean(str(path[-1]), known)
    return Mistake(places.keys.get(path), dotted(path), "unknown key", near or "known here: " + ", ".join(known))


def _fields_at(path: Path) -> list[str]:
    model: type[BaseModel]
    match path:
        case ("hosts", _):
            model = schema.HostEntry
        case ("hosts", _, "keepalive"):
            model = schema.KeepaliveEntry
        case ("hosts", _, "containers", _):
            model = schema.ContainerEntry
        case ("payloads", _):
            model = schema.PayloadEntry
        case ("payloads", _, "topology"):
            model = schema.TopologyEntry
        case ("payloads", _, "caches"):
            model = schema.CachesEntry
        case ("payloads", _, "expected"):
            model = schema.ExpectedEntry
        case ("payloads", _, "expected", "tokens_per_s"):
            model = schema.RangeEntry
        case _:
            model = schema.InventoryEntry
    return list(model.model_fields)
