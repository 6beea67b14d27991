"""PURE: the environment made by orch that a run is started in: which one a launch takes, and what its record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from orchestrator.probes.preflight import Problem
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_mapping, as_str

KEY = "python_environment"
"""In run.json; `environment` there are the variables."""


@dataclass(frozen=True)
class RunEnvironment:
    id: str
    purpose: str
    python: str
    """Path of its interpreter on the target."""
    lock_sha256: str | None
    instead_of: str | None
    """What the inventory's lock asked for, when somebody chose another one."""

    def note(self) -> str | None:
        if self.instead_of is None:
            return None
        return (
            f"environment {self.id[:12]} was chosen instead of {self.instead_of[:12]}, which the lock for "
            f"{self.purpose} asks for"
        )

    def record(self) -> dict[str, object]:
        return asdict(self)


def parse_run_environment(value: object) -> RunEnvironment | None:
    """As run.json has it. None: the run is in none that orch made."""
    facts = as_mapping(value)
    name, purpose, python = (as_str(facts.get(key)) for key in ("id", "purpose", "python"))
    if name is None or purpose is None or python is None:
        return None
    return RunEnvironment(
        one_line(name), one_line(purpose), one_line(python), as_str(facts.get("lock_sha256")),
        as_str(facts.get("instead_of")),
    )  # fmt: skip


def choose_environment(purpose: str, wanted: str, listed: Mapping[str, object]) -> RunEnvironment | Problem:
    """wanted: what the inventory's lock asks for; listed: the answer of the agent's env_list.

    A launch takes what is current, if that is what the lock asks for or was chosen over just that."""
    entry = as_mapping(as_mapping(listed.get("current")).get(purpose))
    name, instead_of = as_str(entry.get("id")), as_str(entry.get("instead_of"))
    if name is None:
        return Problem(f"environment: there is none for {purpose}", "orch env sync")
    facts = as_mapping(as_mapping(listed.get("environments")).get(name))
    python = as_str(facts.get("python"))
    if python is None:
        return Problem(f"environment: {name[:12]} for {purpose} is not complete", "orch env sync")
    if wanted not in (name, instead_of):
        return Problem(
            f"environment: the lock for {purpose} asks for {wanted[:12]}, current is {name[:12]}",
            f"orch env sync   to build and use what the lock says\norch env use {name[:12]}   to stay with this one",
        )
    lock = as_str(facts.get("lock_sha256"))
    return RunEnvironment(name, purpose, python, lock, instead_of if name != wanted else None)
