"""Which findings are shown of a run that is looked at again and again, so that nothing flickers.

Rule: pure; what only one look tells has to last before it is shown, and to stay away before it is gone. What a log, a
counter or a record says is shown at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.diagnosis.finding import Finding, ranked

FLEETING = frozenset(
    ("slow", "eager-fallback", "gpu-throttled", "gpu-neighbour", "input-starved", "drafter-starved", "memory", "clock")
)
"""Ids that a moment may show: a sample of a clock, a window of a rate."""
MOMENTARY = frozenset(("gpu-throttled", "gpu-neighbour", "clock"))
"""Of these, the ones that a single look cannot tell from a moment; the others are of minutes by themselves."""
RISES_S = 60.0
FALLS_S = 120.0


class Rising:
    def __init__(self) -> None:
        self._first_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self._known: dict[str, Finding] = {}
        self._shown: set[str] = set()

    def take(self, found: Sequence[Finding], now_s: float) -> tuple[Finding, ...]:
        """What is found at now_s, by any clock that only goes on. What is to be shown."""
        here = {one.id: one for one in found}
        for finding_id in {*here, *self._known}:
            if finding_id in here:
                self._first_s.setdefault(finding_id, now_s)
                self._last_s[finding_id] = now_s
                self._known[finding_id] = here[finding_id]
                if finding_id not in FLEETING or now_s - self._first_s[finding_id] >= RISES_S:
                    self._shown.add(finding_id)
            elif finding_id not in FLEETING or now_s - self._last_s[finding_id] >= FALLS_S:
                self._forget(finding_id)
            elif finding_id not in self._shown:
                self._forget(finding_id)  # it came and went
        return ranked(self._known[finding_id] for finding_id in self._shown)

    def restart(self) -> None:
        """Another run."""
        for finding_id in [*self._known]:
            self._forget(finding_id)

    def _forget(self, finding_id: str) -> None:
        for told in (self._first_s, self._last_s, self._known):
            told.pop(finding_id, None)
        self._shown.discard(finding_id)
