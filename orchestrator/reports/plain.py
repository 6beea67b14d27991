"""PURE: facts as JSON has them."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any


def plain_values(value: Any) -> Any:
    """Of dataclasses made dicts: enums by value, tuples as lists, NaN and infinity as null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it, and strict readers refuse Python's
    return value
