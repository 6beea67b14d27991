"""PURE: columns of text, and how numbers are said."""

from __future__ import annotations

from collections.abc import Sequence

DASH = "-"
"""Shown for what is not known; never 0."""


def render_rows(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Left-aligned columns, two spaces apart, no trailing blanks."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(max(map(len, rows)))]
    return "\n".join(
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    )


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


def short(tree_hash: str | None) -> str:
    return tree_hash[:12] if tree_hash else DASH
