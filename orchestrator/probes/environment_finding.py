"""One thing that is wrong with an environment, and the command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.environment import EnvironmentFacts


ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True)
class EnvironmentFinding:
    kind: str
    severity: str
    """error: the check does not pass; warning: a doubt; note: what was not looked at, or is only told."""
    text: str
    way_out: str = ""
    """A command line on the target, or what to do."""
    package: str | None = None
    details: tuple[str, ...] = ()


def repair(facts: EnvironmentFacts, what: str, packages: str) -> str:
    """what: install, reinstall, uninstall. By the installer that made the environment: uv's have no pip."""
    by_uv = any(package.installer == "uv" for package in facts.packages) and "pip" not in facts.used()
    words = " ".join(_quoted(word) for word in packages.split())
    python = shlex.quote(facts.python)
    if what == "uninstall":
        return f"uv pip uninstall --python {python} {words}" if by_uv else f"{python} -m pip uninstall -y {words}"
    if by_uv:
        again = "--reinstall --no-deps " if what == "reinstall" else ""
        return f"uv pip install --python {python} {again}{words}"
    again = "--force-reinstall --no-deps " if what == "reinstall" else ""
    return f"{python} -m pip install {again}{words}"


def _quoted(word: str) -> str:
    return shlex.quote(word)
