"""What a kind of failure looks like in a log, and how its values are taken.

Rule: a group of an expression is a value; the end of its name says what it is: `_bytes` a size with its unit, `_kb`
kibibytes with any separators, names of WHOLE whole numbers, all others words as printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from orchestrator.probes.rows import Row
from orchestrator.probes.spans import Value

WHOLE = frozenset(
    [
        "rank",
        "seconds",
        "local_rank",
        "missing_rank",
        "first_rank",
        "pid",
        "chosen_pid",
        "exitcode",
        "signal",
        "gpu",
        "seq",
        "limit_ms",
        "ran_ms",
        "enqueued",
        "completed",
        "retcode",
        "uid",
        "pages",
        "fd",
        "cpu",
        "bank",
        "longest",
        "errno",
        "limit",
        "count",
        "iteration",
        "line_number",
        "version_major",
        "block_x",
        "thread_x",
    ]
)
_SIZE = re.compile(r"([\d,]+(?:\.\d+)?)\s*([KMGTP]i?B|bytes?|B|[KMGT])?\s*$", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


@dataclass(frozen=True)
class Signature:
    kind: str
    needles: tuple[str, ...]
    """One of these, in lower case, is in every row that it is in."""
    pattern: str
    more: tuple[str, ...] = ()
    """Looked for in that row and the `following` ones of the same writer."""
    following: int = 0
    unless: str | None = None
    needs: str | None = None
    """Without this value it is none."""
    others: str | None = None
    """Each `size` is what another process, `pid`, holds."""


def signature(
    kind: str,
    needles: str,
    pattern: str,
    *more: str,
    following: int = 0,
    unless: str | None = None,
    needs: str | None = None,
    others: str | None = None,
) -> Signature:
    """needles: split at `|`."""
    return Signature(kind, tuple(needles.split("|")), pattern, more, following, unless, needs, others)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Of a log that holds no failure none is needed, and compiling them all takes longer than a status may."""
    return re.compile(pattern, re.IGNORECASE)


def values_of(found: re.Match[str], row: Row) -> dict[str, Value]:
    values = {}
    for name, text in found.groupdict().items():
        if text is not None and text.strip():
            value = _value(name.rstrip("0123456789"), text)
            if value is not None:
                values[name.rstrip("0123456789")] = Value(value, row.span(*found.span(name)))
    return values


def _value(name: str, text: str) -> str | int | None:
    if name.endswith("_bytes"):
        return size_bytes(text)
    if name.endswith("_kb"):
        digits = "".join(letter for letter in text if letter in "0123456789")
        return int(digits) if digits else None
    if name in WHOLE:
        return int(text)
    return text.strip()


def size_bytes(text: str) -> int | None:
    """`3.00 GiB`, `0 bytes`, `9.05 GB` (of 1024, as torch's allocators mean it). A number alone is bytes."""
    found = _SIZE.match(text.strip())
    if found is None:
        return None
    unit = (found[2] or "bytes").lower()
    power: int = _POWERS.get(unit[0], 0) if unit[0] != "b" else 0
    number = found[1].replace(",", "")
    try:
        return round(float(number) * float(1024**power))
    except ValueError:
        return None


def merged(first: Mapping[str, Value], second: Mapping[str, Value]) -> dict[str, Value]:
    """What the first says, and what only the second does."""
    return {**second, **first}
