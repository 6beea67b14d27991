"""What must hold of every reading of `orch read`, whoever wrote the reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.probes.spans import OWN_WORDS, Located, Span, Value


def misfits(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where `found` is not as expected. An object may have more keys; a list is whole; numbers are equal to 1e-9."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [wrong for key in expected for wrong in misfits(expected[key], found.get(key), f"{path}.{key}")]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{path}: {len(found)} items instead of {len(expected)}: {found}"]
        return [
            wrong
            for number, (one, other) in enumerate(zip(expected, found, strict=True))
            for wrong in misfits(one, other, f"{path}[{number}]")
        ]
    if isinstance(expected, float) and isinstance(found, int | float):
        return [] if abs(expected - found) <= 1e-9 * abs(expected) else [f"{path}: {found!r} instead of {expected!r}"]
    same = expected == found and isinstance(expected, bool) == isinstance(found, bool)
    return [] if same else [f"{path}: {found!r} instead of {expected!r}"]


def unplaced(reading: Any, text: str) -> list[str]:
    """Values that stand nowhere in the text: without a span, or with one that is empty or outside."""
    return [
        f"{path} = {value!r} at {span}" for path, value, span in leaves(reading) if not _is_place(value, span, text)
    ]


def _is_place(value: Any, span: Span | None, text: str) -> bool:
    """Where a value is missing (two commas in a row), its place is empty."""
    return span is not None and 0 <= span.start < span.end + (value is None) and span.end <= len(text)


def leaves(fact: Any, path: str = "") -> Iterator[tuple[str, Any, Span | None]]:
    """Every value that was read, with its span; None where it has none. What is not known (None) is no value."""
    if isinstance(fact, Value):
        yield path, fact.value, fact.span
    elif isinstance(fact, Mapping):
        for key, value in fact.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(fact, tuple | list):
        for number, item in enumerate(fact):
            yield from leaves(item, f"{path}[{number}]")
    elif dataclasses.is_dataclass(fact):
        spans = fact.spans if isinstance(fact, Located) else {}
        for field in dataclasses.fields(fact):
            value = getattr(fact, field.name)
            if field.name == "spans" or field.metadata == OWN_WORDS:
                continue
            if field.name in spans:
                yield f"{path}.{field.name}", value, spans[field.name]
            else:
                yield from leaves(value, f"{path}.{field.name}")
    elif fact is not None:
        yield path, fact, None
