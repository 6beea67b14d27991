"""Python tracebacks in the text of a log: the last that mattered, and the first.

Rule: the same parser as `orch read log` (tracebacks.py), and nothing of its own.
"""

from __future__ import annotations

from orchestrator.probes.rows import rows_of, told_rows
from orchestrator.probes.traceback_facts import Traceback
from orchestrator.probes.tracebacks import find_tracebacks as tracebacks_of

__all__ = ["Traceback", "find_first_traceback", "find_traceback", "find_tracebacks"]


def find_traceback(text: str) -> Traceback | None:
    """The last one that mattered: what a program that ended with an exception ended with."""
    found = find_tracebacks(text)
    return next((t for t in reversed(found) if not t.ignored), None)


def find_first_traceback(text: str) -> Traceback | None:
    """The first one that mattered: where several threads or ranks failed, most often the cause of the others."""
    return next((t for t in find_tracebacks(text) if not t.ignored), None)


def find_tracebacks(text: str) -> tuple[Traceback, ...]:
    """Each chain is one."""
    return tracebacks_of(told_rows(rows_of(text)))


def last_lines(text: str, count: int = 20) -> str:
    return "\n".join(text.splitlines()[-count:])
