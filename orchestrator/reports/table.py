"""PURE: columns of text, and how numbers are said."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.probes.units import DASH, bytes_text, duration_text, number_text, rate_text

__all__ = ["DASH", "bytes_text", "duration_text", "number_text", "rate_text", "render_rows", "short"]


def render_rows(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Left-aligned columns, two spaces apart, no trailing blanks."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(max(map(len, rows)))]
    return "\n".join(
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    )


def short(tree_hash: str | None) -> str:
    return tree_hash[:12] if tree_hash else DASH
