"""Notices that nothing moves any more, and shows where every thread is.

Rule: it looks and tells, and ends nothing. How long silence may last depends on what is going on: a compilation is
silent for many minutes and is no stall. `kill -USR1` shows the same at any time.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from typing import Callable, Optional

from config import WatchdogConfig
from progress import Progress

LOOK_EVERY_S = 5.0
COMPILERS = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "/triton/compiler/")
"""Where a thread is while it compiles."""


def compiling_now() -> bool:
    """Some thread is inside torch's compiler, whatever the phase is called."""
    for frame in sys._current_frames().values():
        walked = frame
        while walked is not None:
            name = walked.f_code.co_filename
            if any(part in name for part in COMPILERS) and "compil" in walked.f_code.co_name:
                return True
            walked = walked.f_back  # type: ignore[assignment]
    return False


def show_stacks() -> None:
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


class Watchdog:
    def __init__(
        self,
        progress: Progress,
        limits: WatchdogConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        compiling: Callable[[], bool] = compiling_now,
        show: Callable[[], None] = show_stacks,
    ) -> None:
        self._progress, self._limits = progress, limits
        self._clock, self._compiling, self._show = clock, compiling, show
        self._told: Optional[float] = None
        """The silence told of last, by when it began."""
        self._next_s = 0.0
        self._ended = threading.Event()

    def look(self) -> bool:
        """True when it told of a stall: once at the limit, then each time the silence has doubled."""
        began = self._progress.moved_at
        silent_s = self._clock() - began
        if began != self._told:
            self._told, self._next_s = began, self._limits.stall_s
        if silent_s < self._next_s:
            return False
        compiling = self._progress.phase_name == "compiling" or self._compiling()
        if compiling and silent_s < self._limits.compile_s:
            return False
        self._next_s = 2 * silent_s
        what = "compiling" if compiling else self._progress.phase_name
        self._progress.say(f"no progress for {silent_s:.0f} s while {what}; where every thread is:")
        self._show()
        self._progress.note(f"no progress for {silent_s:.0f} s; stacks are in the log")
        return True

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self.look()
