"""PURE: the environment made by orch that a run is started in: which one a launch takes, and what its record says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_mapping, as_str

if TYPE_CHECKING:  # a launch finds problems; every record of a run that is read needs the rest
    from orchestrator.probes.preflight import Problem

REBUILD = "orch env sync --rebuild   builds it once more, beside this one"
"""The way out when an environment that a lock made was changed: it is left as it is, for whoever runs in it."""
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
            f"environment {short_environment(self.id)} was chosen instead of {self.instead_of[:12]}, "
            f"which the lock for {self.purpose} asks for"
        )

    def record(self) -> dict[str, object]:
        return asdict(self)


def asked_by_lock(name: str) -> str:
    """An environment's name without the number that the second and later builds of one lock have."""
    return name.partition("-")[0]


def short_environment(name: str | None) -> str:
    """`0123456789ab`, `0123456789ab-2`; a dash for none."""
    if name is None:
        return "-"
    lock, dash, number = name.partition("-")
    return lock[:12] + dash + number


def choose_by_prefix(names: Iterable[str], wanted: str) -> list[str]:
    """Those that `3f9a` or `3f9a-2` can mean."""
    prefix, dash, number = wanted.partition("-")
    return [name for name in names if name.startswith(prefix) and name.partition("-")[1:] == (dash, number)]


def builds_of(complete: Iterable[str], wanted: str) -> list[str]:
    """The environments that the lock's name `wanted` stands for, the newest build last."""
    return sorted((name for name in complete if asked_by_lock(name) == wanted), key=_number)


def next_build(there: Iterable[str], wanted: str) -> str:
    """A name that no build of this lock has had as long as one of them is there."""
    builds = builds_of(there, wanted)
    return f"{wanted}-{_number(builds[-1]) + 1}" if builds else wanted


def _number(name: str) -> int:
    return int(name.partition("-")[2] or 1)


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
    from orchestrator.probes.preflight import Problem

    entry = as_mapping(as_mapping(listed.get("current")).get(purpose))
    name, instead_of = as_str(entry.get("id")), as_str(entry.get("instead_of"))
    if name is None:
        return Problem(f"environment: there is none for {purpose}", "orch env sync")
    facts = as_mapping(as_mapping(listed.get("environments")).get(name))
    python = as_str(facts.get("python"))
    if python is None:
        return Problem(f"environment: {short_environment(name)} for {purpose} is not complete", "orch env sync")
    if wanted not in (asked_by_lock(name), instead_of):
        shown = short_environment(name)
        return Problem(
            f"environment: the lock for {purpose} asks for {wanted[:12]}, current is {shown}",
            f"orch env sync   to build and use what the lock says\norch env use {shown}   to stay with this one",
        )
    lock = as_str(facts.get("lock_sha256"))
    return RunEnvironment(name, purpose, python, lock, instead_of if asked_by_lock(name) != wanted else None)
