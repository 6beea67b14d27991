"""What the run says of itself: lines in the log and the contract's files.

Rule: a log line and its metrics record say the same; status.json is rewritten at most twice a second, phases always.
What cannot be written, because the disk is full, is lost and counted: no training ends because of its own records.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import contract
from nvml import GpuSampler
from trackers import Tracker, numbers_of

STATUS_EVERY_S = 0.5
WINDOW_S = 390.0
"""Throughput over shorter windows varies too much to compare runs by."""


def peak_memory_mib() -> Optional[List[float]]:
    """Of each GPU this process has used, since it began. None: no GPU, or torch is not even imported."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return [torch.cuda.max_memory_allocated(index) / 2**20 for index in range(torch.cuda.device_count())]


def process_age_s(pid: int) -> Optional[float]:
    """None where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            ticks = int(stream.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as stream:
            return float(stream.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def append_line(path: Path, line: str) -> None:
    """Whole, or not at all: half a line would take the next one with it. Raises OSError."""
    with path.open("ab", buffering=0) as stream:
        before, text = stream.tell(), (line + "\n").encode()
        try:
            if stream.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            stream.truncate(before)
            raise


class Progress:
    def __init__(self, folder: Path, first_process: Optional[int] = None) -> None:
        """first_process: the run's; None: this one."""
        self.folder = folder
        age_s = process_age_s(os.getpid() if first_process is None else first_process)
        self._began = time.monotonic() - (age_s or 0.0)
        self._start: Dict[str, float] = {}
        self._status = contract.Status(phase="loading")
        self._written_at = float("-inf")
        self.moved_at = time.monotonic()
        """When the work last said anything of itself."""
        self._window: Deque[Tuple[float, int]] = deque()
        self._last_line: Tuple[float, int] = (time.monotonic(), 0)
        self._tokens = 0
        self.trackers: List[Tracker] = []
        self._sample_gpus = GpuSampler()
        self._runtime: Dict[str, Any] = {}
        self._lost = 0
        """Records that could not be written since one last could."""

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it stays in Python's buffer, and comes when there is room
            print(line, flush=True)

    def _record(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                self.say(f"warning: a record could not be written, and the run goes on: {error}")
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self.say(f"records are written again; {lost} were lost")

    def phase(self, name: str, detail: Optional[str] = None) -> None:
        self._update(force=True, phase=name, detail=detail)

    def compiling(self, done: int, total: int) -> None:
        """Before each graph that is compiled; `done` are compiled already."""
        self._update(force=True, phase="compiling", detail=None, compile_done=done, compile_total=total)

    @property
    def phase_name(self) -> str:
        return self._status.phase

    def goes_on(self) -> None:
        """Work of which there is nothing to tell yet."""
        self._update()

    def note(self, detail: str) -> None:
        """Something seen from outside the work: it does not count as a move."""
        moved_at = self.moved_at
        self._update(force=True, detail=detail)
        self.moved_at = moved_at

    def detail(self, detail: str) -> None:
        self._update(detail=detail)

    def compiled(self, counts: Dict[str, int]) -> None:
        """Compilations, cache hits and misses, fallbacks, recompiles; nothing where nothing is compiled."""
        if counts:
            self._update(compiled=counts)

    def waits(self, shares: Dict[str, float]) -> None:
        """Role -> part of its time spent waiting at the queue."""
        self._update(wait_shares=shares)

    def runtime(self, facts: Dict[str, Any]) -> None:
        """What is known so far; later facts are added."""
        self._runtime.update(facts)
        record = {"schema": contract.SCHEMA_VERSION, **self._runtime}
        self._record(lambda: contract.write_json(self.folder / contract.RUNTIME, record))

    def start_part(self, part: str) -> None:
        """A part of the start is over: imports (from the process's start on), load, compile, step, in this order."""
        total_s = time.monotonic() - self._began
        self._start[f"{part}_s"] = total_s - sum(self._start.values())
        facts = {**self._start, "total_s": total_s}
        if part == "step":
            facts["without_imports_and_load_s"] = self._start["compile_s"] + self._start["step_s"]
        self.runtime({"first_step": facts})

    def warn(self, text: str) -> None:
        """In the log, in runtime.json and in status.json, for as long as the run goes on; once."""
        if text in (self._status.warnings or []):
            return
        self.say(f"warning: {text}")
        known = [*(self._status.warnings or []), text]
        self.runtime({"warnings": known})
        self._update(force=True, warnings=known)

    def result(self, facts: Dict[str, Any]) -> None:
        contract.write_json(self.folder / contract.RESULT, {"schema": contract.SCHEMA_VERSION, **facts})

    def start_training(self, step: int, total_steps: int) -> None:
        now = time.monotonic()
        self._window.append((now, 0))
        self._last_line = (now, 0)
        self._update(force=True, phase="training", step=step, total_steps=total_steps, detail=None)

    def step(self, step: int, total_steps: int, tokens: int, loss: float) -> None:
        """After every step. `tokens` went through the drafter as context in this step."""
        now = time.monotonic()
        self._tokens += tokens
        self._window.append((now, self._tokens))
        while now - self._window[0][0] > WINDOW_S:
            self._window.popleft()
        spent_s = now - self._window[0][0]
        rate = (self._tokens - self._window[0][1]) / spent_s if spent_s > 0 else None
        per_step_s = spent_s / max(1, len(self._window) - 1)
        self._update(
            step=step,
            total_steps=total_steps,
            loss=loss,
            tokens_per_s=rate,
            eta_s=per_step_s * (total_steps - step),
        )

    def line(self, step: int, total_steps: int, loss: float, facts: Dict[str, Any]) -> None:
        """One log line and one metrics record; the rate is that since the line before."""
        now = time.monotonic()
        spent_s = max(now - self._last_line[0], 1e-9)
        rate = (self._tokens - self._last_line[1]) / spent_s
        self._last_line = (now, self._tokens)
        self.say(f"step {step}/{total_steps} loss {loss:.3f} {rate / 1000:.1f} Ktok/s")
        record = {
            "time": time.time(),
            "step": step,
            "loss": loss,
            "tokens_per_s": rate,
            "tokens_per_s_window": self._status.tokens_per_s,
            "peak_memory_mib": peak_memory_mib(),
            **self._sample_gpus(),
            **facts,
        }
        self._record(lambda: append_line(self.folder / contract.METRICS, json.dumps(record, sort_keys=True)))
        for tracker in self.trackers:
            tracker(step, numbers_of(record))

    def _update(self, *, force: bool = False, **changes: Any) -> None:
        now, at = time.monotonic(), time.time()
        self.moved_at = now
        if changes.get("phase", self._status.phase) != self._status.phase or self._status.phase_started_at is None:
            changes["phase_started_at"] = at
        self._status = contract.Status(**{**self._status.__dict__, **changes, "updated_at": at})
        if force or now - self._written_at >= STATUS_EVERY_S:
            self._record(lambda: contract.write_json(self.folder / contract.STATUS, self._status))
            self._written_at = now
