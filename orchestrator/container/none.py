"""No container: the host itself is the target. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.container import sudo
from orchestrator.container.place import Place
from orchestrator.errors import ContainerError, OrchError


def start_argv(place: Place, argv: Sequence[str]) -> list[str]:
    """In the login's own environment."""
    return [*(sudo.WORDS if place.become == "sudo" else ()), *argv]


def interactive_argv(place: Place, argv: Sequence[str], *, term: str) -> list[str]:
    return start_argv(place, argv)


def start_error(place: Place, stderr: str, exit_code: int) -> OrchError:
    if place.become == "sudo":
        refused = sudo.sudo_refusal(stderr, label=place.label, user=place.user, program="ALL")
        if refused is not None:
            return refused
    return ContainerError(f"{place.label}: nothing could be started", evidence=stderr or f"exit code {exit_code}")
