"""A playbook as it was read: frozen, every static variable resolved.

Rule: pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.inventory.schema import Entry
from orchestrator.playbook.conditions import Condition

STEPS, ON_FAILURE, ALWAYS = "steps", "on_failure", "always"


@dataclass(frozen=True)
class Retry:
    times: int
    wait_s: float


@dataclass(frozen=True)
class Step:
    section: str
    """steps, on_failure or always"""
    number: int
    """Within its section, from 1."""
    name: str
    """Unique in the playbook."""
    operation: str
    """As it is written: `cache seed`."""
    options: Entry
    """Checked; text of it may hold `${names}` that are known only while it runs."""
    line: int
    when: Condition | None = None
    deadline_s: float | None = None
    retry: Retry | None = None
    may_fail: bool = False
    """The play goes on after its failure."""
    target: str | None = None
    """A selector; None: the only target there is."""


@dataclass(frozen=True)
class Playbook:
    path: Path
    sha256: str
    """Of its text."""
    about: str
    variables: Mapping[str, object]
    steps: tuple[Step, ...]
    on_failure: tuple[Step, ...]
    always: tuple[Step, ...]

    @property
    def all_steps(self) -> tuple[Step, ...]:
        return (*self.steps, *self.on_failure, *self.always)
