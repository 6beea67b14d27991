"""NVML's program (nvml.py) as a child of the agent, and what it said last.

Rule: it holds nobody up and takes nobody along. Where it hangs it is killed, where it crashes that is told, and it is
started again after a pause that grows; its last word stays and gets older meanwhile. One that cannot be killed (the
driver holds it) is waited for, never joined by a second one.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from .sources import sources

FIRST_ANSWER_S = 30.0
"""Without persistence mode the driver wakes each GPU up first, which takes seconds."""
SILENT_S = 10.0
SILENT_LOOKS = 5
"""It hangs: nothing for so many looks, and for so long."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LAST_MOMENT_S = 2.0
"""Between the end of a process's output and its own."""
FUTILE_STARTS = 3
"""After so many that ended without one answer it is as good as missing."""
KEPT_BYTES = 4 * 1024 * 1024
BOOT = (
    "import os,sys\nn=int(sys.argv.pop(1));b=b''\n"
    "while len(b)<n:b+=os.read(0,n-len(b)) or sys.exit(4)\n"
    "exec(compile(b,'<orch>/nvml.py','exec'),{'__name__':'__main__'})"
)
NO_LIBRARY = "dlopen"
LIBRARY = "libnvidia-ml.so.1"
LOADER_FOLDERS = ("lib", "usr/lib", "lib64", "usr/lib64")

Record = Dict[str, Any]


def is_findable(root: str = "/") -> bool:
    """Whether the loader can find NVML's library: no process need be started to be told that it cannot. Where that
    is not known, it may."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [os.path.join(root, folder) for folder in LOADER_FOLDERS]
    folders += glob.glob(os.path.join(root, "usr/lib/*-linux-gnu*")) + glob.glob(os.path.join(root, "lib/*-linux-gnu*"))
    if any(os.path.exists(os.path.join(folder, LIBRARY)) for folder in folders):
        return True
    try:
        with open(os.path.join(root, "etc/ld.so.cache"), "rb") as stream:
            return LIBRARY.encode("ascii") in stream.read()
    except OSError:
        return True


class Child:
    """One process. Its source goes over stdin, which stays open: it ends when that is closed, however we end."""

    def __init__(self, words: List[str]) -> None:
        """Raises OSError."""
        source = sources()["nvml.py"]
        argv = [sys.executable, "-I", "-S", "-c", BOOT, str(len(source)), "--leashed", *words]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._pending = b""
        self._is_silent = False
        """Its output has ended."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(source)

    def lines(self, wait_s: float) -> List[bytes] | None:
        """Those that are whole within wait_s; None: it has ended."""
        ready, _, _ = select.select([self._output], [], [], wait_s)
        if not ready:
            return []
        data = os.read(self._output, 1 << 18)
        if not data:
            self._is_silent = True
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._pending = self._pending[-KEPT_BYTES:]
        return lines

    def bury(self, held_s: float | None, ending: threading.Event) -> str:
        """Kill it if it lives; how it ended. One that the driver holds is waited for, for held_s (None: till the end),
        so that there is never a second one beside it."""
        # Not reaped yet, so the number is still its own.
        ended = self._process.poll()
        if ended is None and self._is_silent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended = self._process.wait(LAST_MOMENT_S)
        if ended is None:
            self._process.send_signal(signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        until = float("inf") if held_s is None else time.monotonic() + held_s
        while self._process.poll() is None and time.monotonic() < until and not ending.wait(0.05):
            pass
        if ended is not None and ended < 0:
            return "NVML's child was killed by signal %d" % -ended
        return "NVML's child ended with code %s" % ended


class Answers:
    """What came, line by line."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.told: Record | None = None
        self.told_at: float | None = None
        self.failed: Record | None = None
        """Why NVML as a whole does not work: {call, code, text, library, control_node}."""

    def take(self, line: bytes) -> bool:
        """Whether it tells of GPUs."""
        try:
            record = json.loads(line)
        except ValueError:
            return False
        failed = record.get("error")
        if failed is None:
            self.told, self.told_at, self.failed = record, self._clock(), None
            return True
        self.failed = dict(failed, library=record.get("library"), control_node=record.get("control_node"))
        return False

    @property
    def has_no_library(self) -> bool:
        return (self.failed or {}).get("call") == NO_LIBRARY

    def word(self, error: str | None) -> Record:
        age_s = None if self.told_at is None else self._clock() - self.told_at
        return {"told": self.told, "age_s": age_s, "failed": self.failed, "error": error}


class NvmlChild:
    """Use `start`, `word`, `stop`. library: another one than the system's."""

    def __init__(
        self, interval_s: float, library: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._words = words_of(interval_s, library)
        self._silent_s = max(SILENT_S, SILENT_LOOKS * interval_s)
        self._clock = clock
        self._answers = Answers(clock)
        self._is_findable = library is not None or is_findable()
        self._error: str | None = None
        self._hangs = False
        self._futile = 0
        self._began = clock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(2.0)

    @property
    def is_missing(self) -> bool:
        """There is no such library here, or none that can be used."""
        answers = self._answers
        silent = answers.told is None and answers.failed is None
        return not self._is_findable or answers.has_no_library or (silent and self._futile >= FUTILE_STARTS)

    def word(self) -> Record:
        """{told, age_s, failed, error}: the last answer and how old it is; NVML's own words on why there is no newer
        one ({call, code, text, ...}); ours, where it hangs or has crashed."""
        error = self._error
        silent_s = self._clock() - (self._answers.told_at or self._began)
        if self._hangs or (error is None and self._answers.failed is None and silent_s > self._silent_s):
            error = "NVML has not answered for %d s" % silent_s
        return self._answers.word(error)

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._ending.is_set() and self._is_findable:
            before = self._answers.told_at
            self._follow()
            if self.is_missing:
                return
            pause_s = FIRST_PAUSE_S if self._answers.told_at != before else min(2 * pause_s, LONGEST_PAUSE_S)
            self._ending.wait(pause_s)

    def _follow(self) -> None:
        """Until it ends or hangs."""
        try:
            child = Child(self._words)
        except OSError as error:
            self._error = "NVML's child could not be started: %s" % error
            self._futile += 1
            return
        heard, answered, hung = self._clock(), False, False
        try:
            while not self._ending.is_set() and not hung:
                lines = child.lines(1.0)
                if lines is None:
                    break
                for line in lines:
                    heard, answered = self._clock(), self._answers.take(line) or answered
                    self._error, self._hangs = None, False
                hung = self._clock() - heard > (self._silent_s if answered else max(FIRST_ANSWER_S, self._silent_s))
            self._hangs = self._hangs or hung
        finally:
            how = child.bury(None if hung else 5.0, self._ending)
        if not hung and not self._ending.is_set() and self._answers.failed is None:
            self._error = how
            self._futile += not answered


def words_of(interval_s: float, library: str | None) -> List[str]:
    return ["--interval", "%g" % interval_s, *(["--library", library] if library else [])]


def ask_once(timeout_s: float, cancelled: threading.Event, library: str | None = None) -> Tuple[Record, bool]:
    """The word of one look, as `NvmlChild.word` tells it, and whether NVML is missing here or crashed."""
    answers = Answers(time.monotonic)
    if library is None and not is_findable():
        return answers.word(None), True
    until = time.monotonic() + timeout_s
    try:
        child = Child([*words_of(1.0, library), "--count", "1"])
    except OSError as error:
        return answers.word("NVML's child could not be started: %s" % error), True
    ended = False
    while answers.told is None and answers.failed is None and time.monotonic() < until and not cancelled.is_set():
        lines = child.lines(min(0.1, max(0.0, until - time.monotonic())))
        if lines is None:
            ended = True
            break
        for line in lines:
            answers.take(line)
    how = child.bury(0.5, cancelled)
    if answers.told is not None or answers.failed is not None:
        return answers.word(None), answers.has_no_library
    return answers.word(how if ended else "NVML did not answer within %.0f s" % timeout_s), ended
