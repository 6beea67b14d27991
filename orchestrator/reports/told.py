"""What the agent's watch has told so far: frames in, the report of now out.

Rule: pure; the clock is given, and nothing that was told gets newer by being shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.inventory.model import Target
from orchestrator.probes.throughput import ThroughputMeter
from orchestrator.probes.training import parse_status
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str
from orchestrator.reports.status import StatusReport
from orchestrator.reports.status_facts import GpuWord, gpu_answer, status_report

KEPT_LOG_BYTES = 256 * 1024


class Told:
    """`clock`: monotonic, in seconds."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self._target = target
        self._meter = ThroughputMeter(clock)
        self._facts: dict[str, Any] = {}
        self._log = b""
        self._log_end = 0
        """Offset in the file of what follows `_log`."""

    def take(self, frame: Mapping[str, Any], added: bytes) -> StatusReport:
        """One frame of the agent's watch, from the first one of a connection on."""
        before = self._run_id()
        if "all" in frame:
            self._facts = dict(as_mapping(frame["all"]))
        else:
            self._facts.update(as_mapping(frame.get("changed")))
            if changed := as_mapping(frame.get("run")):
                self._facts["run"] = {**as_mapping(self._facts.get("run")), **changed}
        if self._run_id() != before:
            self._restart()
        self._take_log(as_mapping(frame.get("log")), added)
        self._meter.feed_status(parse_status(as_mapping(self._facts.get("run")).get("status")))
        return status_report(self._target, self._facts, self._log, self._gpu(), throughput=self._meter.fact())

    @property
    def log(self) -> bytes:
        """The end of the run's log, as far as it was told."""
        return self._log

    def _run_id(self) -> str | None:
        return as_str(as_mapping(self._facts.get("run")).get("id"))

    def _take_log(self, log: Mapping[str, object], added: bytes) -> None:
        begin = as_int(log.get("at")) or 0
        if log.get("anew") is True:
            if begin <= self._log_end <= begin + len(added):
                added = added[self._log_end - begin :]  # told again after a connection was lost: go on where it ended
            else:
                if begin < self._log_end:
                    self._restart()  # the file became shorter
                if begin > 0:
                    self._meter.skip_to_line_end()
                self._log, self._log_end = b"", begin
        self._log = (self._log + added)[-KEPT_LOG_BYTES:]
        self._log_end += len(added)
        self._meter.feed(added)

    def _restart(self) -> None:
        self._meter.restart()
        self._log, self._log_end = b"", 0

    def _gpu(self) -> GpuWord:
        return gpu_answer(as_mapping(self._facts.get("gpu")), as_float(self._facts.get("gpu_age_s")))
