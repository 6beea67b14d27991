"""What can go wrong with an agent, beside what its transport raises."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import (
    EXIT_BUG,
    BusyError,
    ContainerError,
    OrchError,
    OutcomeUnknownError,
    PreflightError,
    UnreachableError,
    UsageError,
)

# What a refusal of the agent is to a person; a kind that is not here is our own mistake.
EXIT_CODES = {
    "missing": UsageError.exit_code,
    "busy": BusyError.exit_code,
    "start_unknown": OutcomeUnknownError.exit_code,
    "disk_full": PreflightError.exit_code,
    "start_failed": PreflightError.exit_code,
    "build_failed": PreflightError.exit_code,
    "conflict": PreflightError.exit_code,
    "bad_folder": PreflightError.exit_code,
    "damaged": PreflightError.exit_code,
    "not_empty": PreflightError.exit_code,
    "other_layout": PreflightError.exit_code,
    "io": PreflightError.exit_code,
}


# Where the refusal itself cannot know a better one.
WAYS_OUT = {
    "io": "orch doctor --setup   is the target fit for it, and its `root:` one that may be written to?",
    "disk_full": "free some space over there, then the same again",
}

LOOKS = frozenset(
    (
        *("hello", "trace", "run_facts", "list_runs", "runs_overview", "wait_run", "watch", "preflight", "gpus"),
        *("find_failure", "read_file", "follow_file", "file_contents", "journal_entries", "list_releases"),
        *("list_snapshots", "snapshot_verify", "cache_show", "cache_stats"),
        *("env_facts", "env_look", "env_list", "publications_list"),
    )
)
"""Ops that change nothing over there."""


def lost_error(label: str, why: str, *, only_looked: bool, evidence: str) -> OrchError:
    """For what was under way when the link went. only_looked: all that this session asked is of LOOKS."""
    if only_looked:
        return UnreachableError(
            f"{label}: {why}; it was only looked at, nothing was changed", evidence=evidence, way_out="the same again"
        )
    return OutcomeUnknownError(
        f"{label}: {why}; what was under way may or may not have been done",
        evidence=evidence,
        way_out="look with `orch status` before you repeat it",
    )


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
        super().__init__(message, evidence=evidence, way_out=WAYS_OUT.get(kind, ""))
        self.kind = kind
        self.exit_code = EXIT_CODES.get(kind, EXIT_BUG)
