"""The long text that `nvidia-smi -q` prints without `-x`: titles and values, nested by how far they are indented.

Rule: a value counts under its titles only; what has no field is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu_apps import AppRow
from orchestrator.probes.gpu_csv import FAULTY, GpuRow, action_wanted
from orchestrator.probes.gpu_trouble import ACTIONS, RESET
from orchestrator.probes.gpu_values import Form, NotAValue, fault_in, value_of
from orchestrator.probes.spans import Piece, Span, Value

MAX_LINE = 400
_BEGIN = re.compile(r"=+NVSMI LOG=+")
_GPU = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*")
_LINE = re.compile(r"(?P<indent> *)(?P<title>[A-Za-z][\w .()/-]{0,60}?)(?: *: ?(?P<value>.*))?")
_AT_THE_MARGIN = {"timestamp", "driver version", "cuda version", "attached gpus"}
"""All else is indented: what is not is the driver's or the kernel's word in between, or the next command's."""
_FIELDS: dict[str, tuple[str, Form]] = {
    "product name": ("name", "text"),
    "gpu uuid": ("uuid", "text"),
    "serial number": ("serial", "text"),
    "performance state": ("performance_state", "text"),
    "compute mode": ("compute_mode", "text"),
    "fan speed": ("fan_percent", "percent"),
    "mig mode/current": ("mig", "switch"),
    "ecc mode/current": ("ecc", "switch"),
    "gpu recovery action": ("recovery_action", "text"),
    "fb memory usage/total": ("memory_total_mib", "mib"),
    "fb memory usage/used": ("memory_used_mib", "mib"),
    "fb memory usage/free": ("memory_free_mib", "mib"),
    "fb memory usage/reserved": ("memory_reserved_mib", "mib"),
    "utilization/gpu": ("utilization_percent", "percent"),
    "utilization/memory": ("memory_utilization_percent", "percent"),
    "temperature/gpu current temp": ("temperature_c", "celsius"),
    "temperature/memory current temp": ("memory_temperature_c", "celsius"),
    "clocks/sm": ("sm_clock_mhz", "mhz"),
    "clocks/memory": ("memory_clock_mhz", "mhz"),
    "clocks/graphics": ("graphics_clock_mhz", "mhz"),
    "max clocks/sm": ("sm_clock_max_mhz", "mhz"),
    **{
        f"{section}/{title}": (field, "watt")
        for section in ("power readings", "gpu power readings")
        for title, field in (
            ("power draw", "power_w"),
            ("average power draw", "power_w"),
            ("instantaneous power draw", "power_instant_w"),
            ("current power limit", "power_limit_w"),
            ("enforced power limit", "power_limit_w"),
            ("power limit", "power_limit_w"),
        )
    },
}


class QueryTextReader:
    """Takes the lines of a text in order."""

    def __init__(self) -> None:
        self.gpus: list[GpuRow] = []
        self.processes: list[AppRow] = []
        self.findings: list[Finding] = []
        self._is_within = False
        self._titles: list[tuple[int, str]] = []
        self._gpu: dict[str, tuple[Any, Span]] | None = None
        self._faults: list[Piece] = []
        self._process: dict[str, tuple[Any, Span]] = {}

    def take(self, line: Piece) -> bool:
        """Whether the line is one of such a text."""
        text = line.text[:MAX_LINE]
        if _BEGIN.fullmatch(text.strip()) is not None:
            self._end_gpu()
            self._is_within, self._titles = True, []
            return True
        gpu = _GPU.fullmatch(text)
        if gpu is not None:
            self._end_gpu()
            self._is_within, self._titles = True, []
            self._gpu = {"bus": (gpu["bus"], line.place(gpu, "bus"))}
            return True
        is_at_the_margin = text.partition(":")[0].strip().lower() in _AT_THE_MARGIN
        if not self._is_within or not (text.startswith(" ") or is_at_the_margin):
            self.end()
            return False
        found = _LINE.fullmatch(text)
        if found is None:
            return True
        indent, title = len(found["indent"]), found["title"].strip().lower()
        self._titles = [each for each in self._titles if each[0] < indent]
        value = (found["value"] or "").strip()
        if self._gpu is not None and value:
            at = line.start + text.index(value, found.start("value"))
            self._value([*(name for _, name in self._titles), title], Piece(value, at))
        self._titles.append((indent, title))
        return True

    def end(self) -> None:
        """Of the text: something else comes, or nothing."""
        self._end_gpu()
        self._is_within = False

    def _value(self, titles: Sequence[str], value: Piece) -> None:
        path = "/".join(titles)
        if fault_in(value.text) is not None:
            self._faults.append(value)
        if titles[0] == "processes":
            self._of_process(titles[-1], value)
        elif path == "gpu reset status/reset required" and value.text == "Yes":
            self.findings.append(finding_at(value, FAULTY, RESET, self._named()))
        elif path == "remapped rows/pending" and value.text == "Yes":
            self.findings.append(finding_at(value, "memory_repair_pending", RESET, self._named()))
        elif (about := _FIELDS.get(path)) is not None and self._gpu is not None and about[0] not in self._gpu:
            try:
                self._gpu[about[0]] = (value_of(about[1], value.text), value.span)
            except NotAValue:
                return

    def _of_process(self, title: str, value: Piece) -> None:
        if title == "process id" and value.text.isdecimal():
            self._end_process()
            self._process = {"pid": (int(value.text), value.span)}
        elif title == "name" and self._process:
            self._process["name"] = (value.text, value.span)
        elif title == "used gpu memory" and self._process:
            try:
                self._process["used_mib"] = (value_of("mib", value.text), value.span)
            except NotAValue:
                return

    def _named(self) -> dict[str, Value]:
        return {"bus": Value(*self._gpu["bus"])} if self._gpu else {}

    def _end_process(self) -> None:
        if self._process:
            values = {name: value for name, (value, _) in self._process.items()}
            spans = {name: span for name, (_, span) in self._process.items()}
            self.processes.append(AppRow(**values, other=self._named(), spans=spans))
        self._process = {}

    def _end_gpu(self) -> None:
        self._end_process()
        faults, self._faults = self._faults, []
        if self._gpu is not None:
            # `Unknown Error` of one sensor is none of the GPU: other numbers are told beside it
            numbers = [value for value, _ in self._gpu.values() if isinstance(value, int | float)]
            fault = next((one for one in faults if "Unknown Error" not in one.text or not numbers), None)
            if fault is not None:
                self._gpu["error"] = (fault.text, fault.span)
                self.findings.append(finding_at(fault, FAULTY, RESET, self._named()))
            values = {name: value for name, (value, _) in self._gpu.items()}
            spans = {name: span for name, (_, span) in self._gpu.items()}
            facts = {name: values.pop(name, None) for name in ("name", "memory_total_mib", "memory_used_mib")}
            self.gpus.append(GpuRow(index=None, **facts, **values, spans=spans))
            if (action := values.get("recovery_action")) in ACTIONS:
                self.findings.append(action_wanted(action, spans, self._named()))
        self._gpu = None
