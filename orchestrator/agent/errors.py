"""What can go wrong with an agent, beside what its transport raises."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ContainerError, OrchError


class NoPythonError(ContainerError):
    """No interpreter over there can run the agent. Nothing was executed."""

    def __init__(self, label: str, tried: Sequence[str], evidence: str) -> None:
        super().__init__(
            f"{label}: no Python 3.8 or newer was found (tried {', '.join(tried)})",
            evidence=evidence,
            way_out="name one with `python:` in the inventory; `orch exec`, `orch logs` and `orch attach` work without",
        )


class AgentOpError(OrchError):
    """The agent did what it was asked as far as it could, and says no. kind: one stable word, see far/errors.py."""

    def __init__(self, kind: str, message: str, evidence: str = "") -> None:
        super().__init__(message, evidence=evidence)
        self.kind = kind
