"""Is a run slow? Judged over minutes, and with two thresholds, so that the answer does not flicker.

Rule: pure. A run of the same shape that reaches NEARLY of the good rate is as good as it (healthy runs were seen at 20
to 21.5 Ktok/s, 0.93); one is slow from below SLOW on (a changed environment was seen at 0.60) until it is at NEARLY.
"""

from __future__ import annotations

from orchestrator.ledger.runs import NEAR_BEST
from orchestrator.probes.pace import Pace

NEARLY = NEAR_BEST
SLOW = 0.80
ERRORS = 2.0
"""By so many errors of its mean a rate has to be below SLOW: windows of 20 s vary 1.8 times on a healthy run."""
MOST_LOOKED_AT = 200
"""Of its last lines: hours of them."""


def is_slow(pace: Pace | None, now_per_s: float, good_per_s: float, *, over: bool = False) -> bool:
    """pace: its lines, from which the answer follows line by line; without them, the rate of now decides alone."""
    all_of_it = pace.of_all() if pace is not None and over else None
    if all_of_it is not None:
        return all_of_it.per_s + ERRORS * all_of_it.error_per_s < SLOW * good_per_s
    if pace is None or over or pace.measured() is None:
        return now_per_s < SLOW * good_per_s
    slow = False
    last = len(pace.samples) - 1
    for index in range(max(0, last - MOST_LOOKED_AT), last + 1):
        found = pace.measured(index)
        if found is not None:
            surely = found.per_s + (0.0 if slow else ERRORS * found.error_per_s)
            slow = surely < (NEARLY if slow else SLOW) * good_per_s
    return slow
