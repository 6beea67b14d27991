"""Which of many runs are wanted, and in which order.

Rule: pure; what is not known of a run is behind what is known, however it is sorted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:  # whoever asks for runs connects first, and reads all that this takes meanwhile
    from orchestrator.ledger.runs import RunSummary

OUTCOMES = ("running", "well", "stopped", "failed", "unknown")
SORTS = ("started", "rate", "took", "step", "acceptance")
_AGE = r"(?P<count>\d{1,6})(?P<unit>[mhdw])"
_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True)
class RunQuery:
    last: int | None = None
    """At most so many of those that fit."""
    payload: str | None = None
    outcomes: tuple[str, ...] = ()
    """Some of OUTCOMES; none: any."""
    since_s: float | None = None
    """Unix time."""
    good: bool = False
    sort: str = "started"


def outcome_of(run: RunSummary) -> str:
    """One of OUTCOMES."""
    from orchestrator.probes.training import RunPhase

    if run.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        return "running"
    if run.phase is RunPhase.ENDED_UNKNOWN:
        return "unknown"
    if run.failed:
        return "failed"
    return "stopped" if run.outcome.startswith("was stopped") else "well"


def matching(runs: Sequence[RunSummary], query: RunQuery, least_per_s: float | None = None) -> tuple[RunSummary, ...]:
    """runs: oldest first. The answer: the newest first, or what is largest; all that fit."""
    good = _good(runs, least_per_s) if query.good else set()
    found = [
        run
        for run in reversed(runs)
        if (query.payload is None or run.shape.payload == query.payload)
        and (not query.outcomes or outcome_of(run) in query.outcomes)
        and (query.since_s is None or (run.started_at is not None and run.started_at >= query.since_s))
        and (not query.good or run.run_id in good)
    ]
    value = _VALUES.get(query.sort)
    if value is not None:
        found.sort(key=lambda run: (value(run) is not None, value(run) or 0.0), reverse=True)
    return tuple(found)


def _good(runs: Sequence[RunSummary], least_per_s: float | None) -> set[str]:
    """Of each shape those that a comparison may be made with."""
    from orchestrator.ledger.runs import GOOD, good_runs

    shapes = dict.fromkeys(run.shape for run in runs)
    marked = {run.run_id for run in runs if run.mark and run.mark.verdict == GOOD}
    return marked.union(*({one.run_id for one in good_runs(runs, shape, least_per_s=least_per_s)} for shape in shapes))


def _rate(run: RunSummary) -> float | None:
    from orchestrator.ledger.runs import rate_of

    rate = rate_of(run)
    return rate.per_s if rate else None


_VALUES: dict[str, Callable[[RunSummary], float | None]] = {
    "rate": _rate,
    "took": lambda run: run.duration_s,
    "step": lambda run: run.step,
    "acceptance": lambda run: run.acceptance,
}


def parse_since(text: str, now_s: float) -> float:
    """`7d`, `36h`, `90m`, `2w`, `2026-11-20`, `2026-11-20T14:00`: Unix time; dates are UTC. Raises UsageError."""
    age = re.fullmatch(_AGE, text)
    if age is not None:
        return now_s - int(age["count"]) * _UNITS_S[age["unit"]]
    from datetime import UTC, datetime

    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        way_out = "orch runs --since 7d\norch runs --since 2026-11-20"
        raise UsageError(f"--since takes an age or a date, not {text!r}", way_out=way_out) from error
