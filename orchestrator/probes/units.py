"""PURE: how bytes, times and rates are said."""

from __future__ import annotations

DASH = "-"
"""Shown for what is not known; never 0."""


def number_text(number: int | None) -> str:
    return DASH if number is None else str(number)


def bytes_text(count: float | None) -> str:
    if count is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration_text(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    whole = round(seconds)
    if whole < 0:
        return DASH
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"


def rate_text(tokens_per_s: float | None) -> str:
    if tokens_per_s is None:
        return DASH
    return f"{tokens_per_s / 1000:.1f} Ktok/s" if tokens_per_s >= 1000 else f"{tokens_per_s:.0f} tok/s"
