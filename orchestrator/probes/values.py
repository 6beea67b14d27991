"""Values out of JSON that something else wrote: the right type, or None.

Rule: nothing is converted; "5" is not 5, and true is not 1.
"""

from __future__ import annotations

from collections.abc import Mapping


def as_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_float(value: object) -> float | None:
    """Whole numbers too. NaN stays: a loss that is no number is news, not unknown."""
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:  # hundreds of digits
        return None


def as_str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def as_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def as_mapping(value: object) -> Mapping[str, object]:
    """Empty when it is none."""
    return value if isinstance(value, dict) else {}


def as_strs(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
