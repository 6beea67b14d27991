"""Times as people write them: `90s`, `30m`, `8h`, `1h30m`. A bare number says no unit and is refused.

Rule: pure.
"""

from __future__ import annotations

import re

PATTERN = r"([0-9]{1,6}[smhd]){1,4}"
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 366 * 86400.0


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError with what to write."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text) if re.fullmatch(PATTERN, text) else []
    if not parts:
        raise ValueError("a time has a unit: write 90s, 30m, 8h or 1h30m")
    seconds = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
    if not 0 < seconds <= LONGEST_S:
        raise ValueError("a time is at least 1s and at most 366d")
    return seconds


def duration_words(seconds: float) -> str:
    """`1h30m`; below a second as it is."""
    rest, words = round(seconds), ""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS_S[unit]))
        words += f"{count}{unit}" if count else ""
    return words or f"{seconds:g}s"
