"""Every kind of container there is.

Rule: a kind is a module of pure functions; this dict is the only place that lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.container import none, pct
from orchestrator.container.place import Place
from orchestrator.errors import OrchError
from orchestrator.inventory.model import ContainerKind


class Kind(Protocol):
    def start_argv(self, place: Place, argv: Sequence[str]) -> list[str]:
        """What to start on the host so that argv runs inside, streams and exit code passed through."""
        ...

    def interactive_argv(self, place: Place, argv: Sequence[str], *, term: str) -> list[str]: ...

    def start_error(self, place: Place, stderr: str, exit_code: int) -> OrchError:
        """The cause, from what the host printed instead of starting argv."""
        ...


KINDS: dict[ContainerKind, Kind] = {"none": none, "pct": pct}
