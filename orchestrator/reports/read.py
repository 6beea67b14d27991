"""The reading of one captured output: `orch read`, as JSON (schema orch.read/1) and as lines.

Rule: pure, and the same for every kind: a reading is a dataclass of facts, whose `spans` say where their values stand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from orchestrator.probes.spans import NO_SPANS, Span, Value
from orchestrator.probes.text import one_line

SCHEMA = "orch.read/1"
SHOWN_CHARACTERS = 200
"""A span's own text stands beside the value unless it is longer: the input has it."""

Json = Any


def read_record(kind: str, text: str | None, reading: object, *, characters: int = 0) -> dict[str, Json]:
    """text: None of a log that is too large to hold, of `characters`; values then stand without theirs."""
    characters = characters if text is None else len(text)
    return {"schema": SCHEMA, "kind": kind, "characters": characters, "reading": _record(reading, text)}


def plain_values(record: Json) -> Json:
    """The record's `reading` with every `{value, span}` replaced by the value alone."""
    if isinstance(record, dict):
        if "value" in record and "span" in record:
            return record["value"]
        return {key: plain_values(value) for key, value in record.items()}
    return [plain_values(item) for item in record] if isinstance(record, list) else record


def render_reading(record: Mapping[str, Json]) -> str:
    """One line a value: where it is in the reading, the value, its span."""
    rows = list(_rows(record["reading"], ""))
    if not rows:
        return f"{record['kind']}: nothing to read"
    width = min(44, max(len(path) for path, _, _ in rows))
    shown = max(len(value) for _, value, _ in rows)
    return "\n".join(f"{path:<{width}}  {value:<{min(shown, 60)}}  {span}".rstrip() for path, value, span in rows)


def is_empty(record: Mapping[str, Json]) -> bool:
    """Nothing at all was read."""
    return not any(span for _, _, span in _rows(record["reading"], ""))


def _record(fact: object, text: str | None) -> Json:
    if isinstance(fact, Value):
        return _leaf(fact.value, fact.span, text)
    if dataclasses.is_dataclass(fact):
        return _fact_record(fact, text)
    if isinstance(fact, Mapping):
        return {str(key): _record(value, text) for key, value in fact.items()}
    if isinstance(fact, tuple | list):
        return [_record(item, text) for item in fact]
    return fact.value if isinstance(fact, Enum) else fact


def _fact_record(fact: Any, text: str | None) -> Json:
    spans = getattr(fact, "spans", NO_SPANS)
    record: dict[str, Json] = {}
    for field in dataclasses.fields(fact):
        if field.name == "spans":
            continue
        value = getattr(fact, field.name)
        span = spans.get(field.name)
        record[field.name] = _record(value, text) if span is None else _leaf(_record(value, text), span, text)
    return record


def _leaf(value: Json, span: Span, text: str | None) -> Json:
    leaf: dict[str, Json] = {"value": value, "span": [span.start, span.end]}
    if text is not None and span.end - span.start <= SHOWN_CHARACTERS:
        leaf["text"] = span.of(text)
    return leaf


def _rows(record: Json, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(record, dict):
        if "value" in record and "span" in record:
            start, end = record["span"]
            yield path, _shown(record["value"]), f"{start}-{end}"
            return
        for key, value in record.items():
            yield from _rows(value, f"{path}.{key}" if path else key)
    elif isinstance(record, list):
        for index, item in enumerate(record):
            yield from _rows(item, f"{path}[{index}]")
    elif record not in (None, ""):
        yield path, _shown(record), ""


def _shown(value: Json) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return one_line(str(value))
