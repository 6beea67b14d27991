"""What a step is given, and what it gives back.

A step's function gets its target, its options with every variable filled in, and `At`. It returns `Done`, or raises
OrchError: then the step has failed. What it must know after a crash it notes before it acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.inventory.model import Inventory, Target
from orchestrator.transport.tracing import Trace


@dataclass(frozen=True)
class Done:
    said: str
    """What came of it; the first line is shown in tables."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Built-in variables that are known now: plain JSON."""
    warning: str = ""
    """Something a person should know though the step has not failed."""


@dataclass(frozen=True)
class At:
    target: Target
    inventory: Inventory
    known: Mapping[str, object]
    """Variables and built-in ones, as far as they are known."""
    noted: Mapping[str, object]
    """What this step noted the last time, when it was cut off or is tried again; else empty."""
    note: Callable[[Mapping[str, object]], None]
    """On disk when it returns."""
    begun_runs: tuple[str, ...]
    """Ids that this play has chosen for runs, whether or not they were ever started."""
    again: bool
    """Nobody knows how it ended the last time."""
    say: Callable[[str], None]
    """A line for whoever looks on."""
    on_status: Callable[[Mapping[str, Any]], None]
    """The run's status.json, while one is waited for."""
    play_id: str
    trace: Trace | None = None

    @property
    def run_id(self) -> str | None:
        """Of the run that this play launched."""
        found = self.known.get("run_id")
        return found if isinstance(found, str) else None


Step = Callable[[At, Any], Awaitable[Done]]
