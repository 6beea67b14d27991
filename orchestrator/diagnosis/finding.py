"""What is wrong with a run or its target: the evidence in numbers, the likely cause, the one next step.

Rule: pure. Findings of a text, with the place of each word, are another thing: probes/finding.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.probes.text import one_line

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = (CRITICAL, WARNING, INFO)

ORDER = (
    # It cannot be looked at.
    "ssh",
    "pct",
    # The machine fails.
    "gpu-lost",
    "gpu-ecc",
    "disk-full",
    # The log, a counter or the environment itself says it.
    "missing-library",
    "fx-race",
    "torch-changed",
    "hacked-cache",
    # What was changed.
    "environment-polluted",
    "cuda-major",
    "code-edited",
    "stray-process",
    "gpu-neighbour",
    "gpu-throttled",
    "shm-small",
    "recompile-limit",
    "seed-missed",
    "warm-up-insufficient",
    "cold-cache",
    "settings-changed",
    "data-changed",
    "input-starved",
    "drafter-starved",
    "memory",
    "diverged",
    # What follows from it.
    "eager-fallback",
    "slow",
    "run-stalled",
    "run-dead",
    "session-dead",
    "clock",
)
"""Every id: the cause before what follows from it."""
RANKS = {finding_id: rank for rank, finding_id in enumerate(ORDER)}
SYMPTOMS = ("eager-fallback", "slow", "run-stalled", "run-dead")
"""Something made it so: what may have is as severe as they are."""


@dataclass(frozen=True)
class Finding:
    id: str
    """One of ORDER."""
    severity: str
    what: str
    """One line."""
    evidence: tuple[str, ...]
    """What was seen, in numbers, beside the last good run."""
    cause: str
    """The likely one."""
    next_step: str
    """One sentence."""
    command: str | None = None
    """That does it; None: no command does."""

    @property
    def line(self) -> str:
        """`critical slow: 12.8 Ktok/s: 40 % less than the last good run ...`"""
        return one_line(f"{self.severity} {self.id}: {self.what}", 240)

    @property
    def rank(self) -> int:
        return RANKS[self.id]


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each id once; what needs no doing last."""
    first: dict[str, Finding] = {}
    for one in sorted(found, key=lambda one: SEVERITIES.index(one.severity)):
        known = first.get(one.id)
        if known is None:
            first[one.id] = one
        else:
            evidence = dict.fromkeys((*known.evidence, *([one.what] if one.what != known.what else []), *one.evidence))
            first[one.id] = replace(known, evidence=tuple(evidence))
    return tuple(sorted(first.values(), key=lambda one: (one.severity == INFO, one.rank)))


def worst(found: Iterable[Finding]) -> str | None:
    """The severity that counts. None: there is none."""
    present = {one.severity for one in found}
    return next((severity for severity in SEVERITIES if severity in present), None)
