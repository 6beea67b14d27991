"""nvidia-smi as one long-lived child that repeats its answer (`-l SECONDS`), and what it said last.

Rule: it holds nobody up. Where it hangs or ends, its last word stays and gets older, and it is started again after
a pause that grows; one that cannot be killed is waited for, never joined by a second one.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List

QUIET_S = 0.25
"""A round whose lines have stopped coming is whole."""
SILENT_ROUNDS = 5
SILENT_S = 10.0
"""It hangs: nothing for so many rounds, and for so long."""
HELD_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
KEPT_BYTES = 64 * 1024

GUARD = '"$@" </dev/null 2>&1 & exec >/dev/null 2>&1; read x; kill -9 0'
"""A shell around it, in a group of their own: when our end of its stdin closes, however we end, both are killed."""


class Rounds:
    """Its lines, put together to whole answers. `columns`: how many values a row has."""

    def __init__(self, columns: int, clock: Callable[[], float]) -> None:
        self._commas = columns - 1
        self._clock = clock
        self._pending = b""
        self._rows: List[str] = []
        self._heard = clock()
        self.rows: List[str] = []
        """The last whole round's."""
        self.rows_at: float | None = None
        self.words: List[str] = []
        """What it has said since, instead of rows: its errors come on stdout too."""

    def feed(self, data: bytes) -> None:
        self._heard = self._clock()
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._pending = self._pending[-KEPT_BYTES:]
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            if text.count(",") != self._commas:
                self.words = [*self.words[-9:], text] if text else self.words
                continue
            if self._rows and _index(text) == _index(self._rows[0]):
                self._finish()  # the next round began before this one was seen to end
            self._rows.append(text)
            if len(self._rows) == len(self.rows):
                self._finish()

    @property
    def open(self) -> bool:
        """A round has begun whose end has not been seen."""
        return bool(self._rows)

    def settle(self) -> None:
        """To be called now and then: ends a round behind which nothing came."""
        if self._rows and self._clock() - self._heard >= QUIET_S:
            self._finish()

    def end(self) -> None:
        """It ended: half a round is no round."""
        self._rows, self._pending = [], b""

    def _finish(self) -> None:
        self.rows, self._rows = self._rows, []
        self.rows_at = self._clock()
        self.words = []


HUNG = "nvidia-smi has not answered"


def _index(row: str) -> str:
    return row.partition(",")[0]


class Repeated:
    """argv: without `-l`. Use `start`, `word`, `stop`."""

    def __init__(
        self, argv: List[str], columns: int, interval_s: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._argv = [*argv, "-l", str(interval_s)]
        self._silent_s = max(SILENT_S, SILENT_ROUNDS * float(interval_s))
        self._rounds = Rounds(columns, clock)
        self._clock = clock
        self._error: str | None = None
        self._silent = False
        self._began = clock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="nvidia-smi", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(2.0)

    def word(self) -> Dict[str, Any]:
        """{rows, error, age_s}: age_s is that of the rows, None while there were none."""
        rounds = self._rounds
        age_s = None if rounds.rows_at is None else self._clock() - rounds.rows_at
        error = self._error or "; ".join(rounds.words) or None
        silent_s = self._clock() - (rounds.rows_at or self._began)  # over all that were started since
        if error == HUNG or (error is None and silent_s > self._silent_s):
            error = "%s for %d s" % (HUNG, silent_s)
        return {"rows": rounds.rows, "error": error, "age_s": age_s}

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._ending.is_set():
            before = self._rounds.rows_at
            self._error = None
            self._error = self._follow()
            self._rounds.end()
            pause_s = FIRST_PAUSE_S if self._rounds.rows_at != before else min(2 * pause_s, LONGEST_PAUSE_S)
            self._ending.wait(pause_s)

    def _follow(self) -> str | None:
        """Until it ends or hangs; says which."""
        if shutil.which(self._argv[0]) is None:
            return "%s is not installed" % self._argv[0]
        pipe = subprocess.PIPE
        try:
            child = subprocess.Popen(
                ["sh", "-c", GUARD, "sh", *self._argv], stdin=pipe, stdout=pipe, start_new_session=True
            )
        except OSError as error:
            return "nvidia-smi could not be started: %s" % error
        try:
            return self._read(child)
        finally:
            self._bury(child)

    def _read(self, child: subprocess.Popen[bytes]) -> str | None:
        assert child.stdout is not None
        output = child.stdout.fileno()
        heard, self._silent = self._clock(), False
        while not self._ending.is_set():
            # While a round is coming in, its end is looked for.
            ready, _, _ = select.select([output], [], [], QUIET_S if self._rounds.open else 1.0)
            if ready:
                data = os.read(output, 65536)
                if not data:
                    return "; ".join(self._rounds.words) or "nvidia-smi ended"
                heard = self._clock()
                self._rounds.feed(data)
            self._rounds.settle()
            if self._clock() - heard > self._silent_s:
                self._silent = True
                return HUNG
        return None

    def _bury(self, child: subprocess.Popen[bytes]) -> None:
        """One that hung may be held by the driver, so that it cannot be killed yet: it is waited for, for a while."""
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so the group is still its own
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        child.wait()  # the shell
        until = self._clock() + (HELD_S if self._silent else 0.0)
        while self._clock() < until and _is_group(child.pid):
            if self._ending.wait(0.1):
                return


def _is_group(group: int) -> bool:
    """A number that is still a group's is given to no other process."""
    try:
        os.killpg(group, 0)
        return True
    except OSError:
        return False
