"""What SIGTERM, Ctrl-C and SIGUSR1 mean.

Rule: the first asks, and is answered at the next step's end; the second is not caught and ends the process at once.
"""

from __future__ import annotations

import faulthandler
import signal
from types import FrameType
from typing import Optional


class StopAsked(Exception):
    """Raised where there is nothing to save."""


class StopRequest:
    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Where every thread is, written to the log at once; nothing is ended.
        faulthandler.register(signal.SIGUSR1, all_threads=True)

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        self.asked = True
        for again in (signal.SIGTERM, signal.SIGINT):
            signal.signal(again, signal.SIG_DFL)

    def leave_if_asked(self) -> None:
        """For work that has nothing worth keeping. Raises StopAsked."""
        if self.asked:
            raise StopAsked
