"""The table that plain `nvidia-smi` draws, row by row, whole or in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.gpu_apps import AppRow
from orchestrator.probes.gpu_csv import FAULTY, GpuRow, listed_gpu
from orchestrator.probes.gpu_processes import DRIVER_OWN_MIB
from orchestrator.probes.gpu_trouble import RESET
from orchestrator.probes.gpu_values import Form, NotAValue, fault_in, value_of
from orchestrator.probes.gpu_xml import MigDevice
from orchestrator.probes.spans import Piece, Span, Value

MAX_LINE = 1024
_NAMED = re.compile(
    r"(?P<index>[0-9]{1,3})  +(?P<name>[A-Z][^|]{1,60}?)  +(?:On|Off|N/A|WDDM|TCC|MCDM) *\| "
    r"*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])"
    r"(?: +(?:On|Off|N/A) *\| +(?P<ecc>[0-9]{1,12}|N/A|Off|ERR!) )?"
)
_VALUES = re.compile(
    r"(?P<fan>[0-9]{1,3} ?%|N/A|ERR!) +(?P<temperature>[0-9]{1,3} ?C|N/A|ERR!) +(?P<state>P[0-9]{1,2}|N/A|ERR!) +"
    r"(?P<power>[0-9]{1,4} ?W|N/A|ERR!|Unknown Error) */ *(?P<limit>[0-9]{1,4} ?W|N/A|ERR!) *\|? *"
    r"(?P<used>[0-9]{1,7} ?Mi?B|N/A|ERR!) */ *(?P<total>[0-9]{1,7} ?Mi?B|N/A|ERR!)"
    r"(?: *\| *(?P<busy>[0-9]{1,3} ?%|N/A|ERR!))?"
)
_MIG_MODE = re.compile(r"\|\s{8,}\|\s{8,}\|\s+(?P<mig>Enabled|Disabled)\*?\s*\|")
"""The third line of a GPU."""
_MIG_DEVICE = re.compile(
    r"\|\s+(?P<gpu>[0-9]{1,3})\s+(?P<gpu_instance>[0-9]{1,3})\s+(?P<compute_instance>[0-9]{1,3})\s+(?P<index>[0-9]{1,3})"
    r"\s+\|\s+(?P<memory_used_mib>[0-9]{1,7}) ?MiB */ *(?P<memory_total_mib>[0-9]{1,7}) ?MiB\s*"
    r"\|\s+(?P<multiprocessors>[0-9]{1,4})\s"
)
_PROCESS = re.compile(
    r"\|\s+(?P<gpu>[0-9]{1,3})\s+(?:(?:[0-9]{1,3}|N/A)\s+(?:[0-9]{1,3}|N/A)\s+)?(?P<pid>[0-9]{1,10})\s+"
    r"(?P<type>C\+G|M\+C|[CGM])\s+(?P<name>\S.{0,200}?)\s+(?P<used>[0-9]{1,7} ?MiB|N/A)\s*\|"
)
_NOBODY = re.compile(r"No running processes found")
_GROUPS: dict[str, tuple[str, Form]] = {
    "fan": ("fan_percent", "percent"),
    "temperature": ("temperature_c", "celsius"),
    "state": ("performance_state", "text"),
    "power": ("power_w", "watt"),
    "limit": ("power_limit_w", "watt"),
    "used": ("memory_used_mib", "mib"),
    "total": ("memory_total_mib", "mib"),
    "busy": ("utilization_percent", "percent"),
}


@dataclass(frozen=True)
class TableMigDevice(MigDevice):
    gpu: int | None = None
    """The GPU's index."""


@dataclass(frozen=True)
class Table:
    gpus: tuple[GpuRow, ...]
    mig_devices: tuple[TableMigDevice, ...]
    processes: tuple[AppRow, ...]
    """Their names as the table shortens them (`...x86_64/foo`)."""
    findings: tuple[Finding, ...]


def read_table(lines: Sequence[Piece]) -> Table:
    gpus: list[GpuRow] = []
    findings: list[Finding] = []
    named: tuple[dict[str, Any], dict[str, Span]] | None = None
    nobody: Piece | None = None
    slices: list[TableMigDevice] = []
    processes: list[AppRow] = []
    for line in lines:
        text = line.text[:MAX_LINE]
        if row := _NAMED.search(text):
            values = {"index": int(row["index"]), "name": row["name"], "bus": row["bus"]}
            spans = {group: line.place(row, group) for group in values}
            if (row["ecc"] or "").isdecimal():
                values["ecc_uncorrected"], spans["ecc_uncorrected"] = int(row["ecc"]), line.place(row, "ecc")
            named = (values, spans)
        elif listed := listed_gpu(line.cut(0, MAX_LINE)):
            gpus.append(listed)
        elif row := _VALUES.search(text):
            gpu, fault = _gpu(line, row, named)
            named = None
            gpus.append(gpu)
            findings += [fault] if fault else []
        elif gpus and (row := _MIG_MODE.search(text)):
            spans = {**gpus[-1].spans, "mig": line.place(row, "mig")}
            gpus[-1] = replace(gpus[-1], mig=row["mig"] == "Enabled", spans=spans)
        elif row := _MIG_DEVICE.search(text):
            numbers = {name: int(number) for name, number in row.groupdict().items()}
            slices.append(TableMigDevice(**numbers, spans={name: line.place(row, name) for name in numbers}))
        elif row := _PROCESS.search(text):
            processes.append(_process(line, row))
        elif _NOBODY.search(text):
            nobody = line
    return Table(tuple(gpus), tuple(slices), tuple(processes), (*findings, *_held(gpus, nobody)))


def _process(line: Piece, row: re.Match[str]) -> AppRow:
    used = value_of("mib", row["used"])
    return AppRow(
        pid=int(row["pid"]),
        name=row["name"],
        used_mib=used if isinstance(used, int) else None,
        other={
            "gpu": Value(int(row["gpu"]), line.place(row, "gpu")),
            "type": Value(row["type"], line.place(row, "type")),
        },
        spans={"pid": line.place(row, "pid"), "name": line.place(row, "name"), "used_mib": line.place(row, "used")},
    )


def _gpu(
    line: Piece, row: re.Match[str], named: tuple[dict[str, Any], dict[str, Span]] | None
) -> tuple[GpuRow, Finding | None]:
    values: dict[str, Any] = {"index": None, "name": None, "memory_used_mib": None, "memory_total_mib": None}
    spans: dict[str, Span] = {}
    if named is not None:
        values.update(named[0])
        spans.update(named[1])
    fault: Piece | None = None
    for group, (field, form) in _GROUPS.items():
        if row[group] is None:
            continue
        try:
            values[field], spans[field] = value_of(form, row[group]), line.place(row, group)
        except NotAValue:  # pragma: no cover - the pattern lets nothing else through
            continue
        if fault is None and fault_in(row[group]):
            fault = line.cut(*row.span(group))
    gpu = GpuRow(**values, spans=spans)
    if fault is None:
        return gpu, None
    about: dict[str, Value] = {
        name: Value(getattr(gpu, name), spans[name]) for name in ("index", "bus") if name in spans
    }
    gpu = replace(gpu, error=fault.text, spans={**spans, "error": fault.span})
    return gpu, finding_at(line.strip(), FAULTY, RESET, about, fault.span)


def _held(gpus: Sequence[GpuRow], nobody: Piece | None) -> Iterator[Finding]:
    """Memory that no process of the table holds."""
    for gpu in gpus if nobody is not None else ():
        if nobody is not None and (gpu.memory_used_mib or 0) > DRIVER_OWN_MIB:
            span = gpu.spans["memory_used_mib"]
            yield finding_at(
                nobody.strip(),
                "memory_held_by_no_process",
                "from inside a container others' processes are not seen: look on the host; what no process there holds "
                "is freed by a reset of the GPU",
                {"used_mib": Value(gpu.memory_used_mib, span)},
            )
