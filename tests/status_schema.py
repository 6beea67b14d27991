"""The JSON Schema of `orch status --json`, made from the facts' own types; and a check of a value against it.

python -m tests.status_schema > docs/orch.status.2.schema.json
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import json
import sys
import textwrap
import types
import typing
from collections.abc import Mapping
from typing import Any

from orchestrator.reports.status import SCHEMA, StatusReport

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def status_schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    top = _object(StatusReport, definitions)
    top["properties"] = {"schema": {"const": SCHEMA}, **top["properties"]}
    top["required"] = ["schema", *top["required"]]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of `orch status --json`: {SCHEMA}",
    }
    return {**head, **top, "$defs": dict(sorted(definitions.items()))}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, notes = typing.get_type_hints(kind), _notes(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        properties[field.name] = _of(hints[field.name], definitions)
        if field.name in notes:
            properties[field.name] = {"description": notes[field.name], **properties[field.name]}
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    doc = inspect.getdoc(kind) or ""
    return found if doc.startswith(f"{kind.__name__}(") else {"description": " ".join(doc.split()), **found}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint is object or hint is Any:
        return {}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [_of(argument, definitions) for argument in arguments]
        if all(set(option) == {"type"} for option in options):
            return {"type": [option["type"] for option in options]}
        return {"anyOf": options}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        definitions[hint.__name__] = {"enum": [member.value for member in hint]}
    elif dataclasses.is_dataclass(hint) and hint.__name__ not in definitions:
        definitions[hint.__name__] = {}  # may hold itself
        definitions[hint.__name__] = _object(hint, definitions)
    assert hint.__name__ in definitions, f"no schema for {hint}"
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _notes(kind: type) -> dict[str, str]:
    """Field -> the string under it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, note in zip(body.body, body.body[1:], strict=False):
        text = note.value.value if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            found[field.target.id] = " ".join(text.split())
    return found


def problems(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any] | None = None, at: str = "$") -> list[str]:
    """Where the value is not as the schema says; names that the schema does not know are problems too."""
    whole = schema if whole is None else whole
    if "$ref" in schema:
        return problems(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, at)
    if "anyOf" in schema:
        tried = [problems(value, option, whole, at) for option in schema["anyOf"]]
        return [] if [] in tried else max(tried, key=len)
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is not one of {schema['enum']}"]
    kinds = schema.get("type", [])
    if kinds and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return [f"{at}: {value!r} is not {kinds}"]
    found = []
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += problems(item, schema["items"], whole, f"{at}[{number}]")
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{at}: {name} is missing" for name in schema["required"] if name not in value]
        for name, inner in value.items():
            if name in schema["properties"]:
                found += problems(inner, schema["properties"][name], whole, f"{at}.{name}")
            else:
                found.append(f"{at}: {name} is not in the schema")
    return found


def _is(value: Any, kind: str) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    names = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
    return isinstance(value, names[kind])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(status_schema(), indent=1) + "\n")
