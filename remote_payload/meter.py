"""What is gathered over several steps: where a step's time goes, and the acceptance since the last checkpoint.

Rule: taking empties it, so every record tells of the stretch since the one before.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from loss import BlockLoss
from torch import Tensor


class PhaseTimes:
    """Seconds by phase. On a GPU a phase ends when Python goes on, not the device; reading a number waits for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent_s: Dict[str, float] = {}
        self._steps = 0

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self._spent_s[phase] = self._spent_s.get(phase, 0.0) + self._clock() - began

    def step_done(self) -> None:
        self._steps += 1

    def take(self) -> Dict[str, float]:
        """phase_s/<name>: the mean of a step."""
        steps = max(1, self._steps)
        taken = {f"phase_s/{phase}": spent_s / steps for phase, spent_s in self._spent_s.items()}
        self._spent_s, self._steps = {}, 0
        return taken


class AcceptanceSince:
    """The mean simulated acceptance since it was last taken. It waits for no device before it is taken."""

    def __init__(self) -> None:
        self._lengths: List[Tensor] = []

    def add(self, outcomes: Iterable[BlockLoss]) -> None:
        self._lengths += [outcome.simulated_acceptance.detach() for outcome in outcomes]

    def take(self, *, least: int = 1) -> Optional[float]:
        """None after fewer than `least` batches: a lucky one or two are no better checkpoint."""
        lengths = [float(length) for length in self._lengths]
        self._lengths = []
        return sum(lengths) / len(lengths) if len(lengths) >= max(1, least) else None


def mean_facts(each: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Facts of every replica's loss -> for metrics.jsonl: the mean over replicas, slot by slot."""
    return {name: _mean([facts[name] for facts in each]) for name in each[0]}


def _mean(values: List[Any]) -> Any:
    if isinstance(values[0], list):
        return [_mean(list(slot)) for slot in zip(*values, strict=True)]
    return sum(values) / len(values)
