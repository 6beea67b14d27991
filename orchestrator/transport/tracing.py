"""What `-v` is told: every argv that is about to be started, with where.

Rule: told, never asked; a trace changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Trace = Callable[[str, Sequence[str]], None]


def no_trace(_label: str, _argv: Sequence[str]) -> None:
    return None
