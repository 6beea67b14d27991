"""Is the other side still there? Both sides ask this one way: any bytes count, beats fill the silence."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Callable

BEAT_INTERVAL_S = 3.0
BEAT_LIMIT_S = 15.0


class Liveness:
    def __init__(self, limit_s: float = BEAT_LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._last = clock()

    def touch(self) -> None:
        self._last = self._clock()

    def left_s(self) -> float:
        """Seconds until the other side counts as gone; 0 or less: it does."""
        return self._last + self.limit_s - self._clock()
