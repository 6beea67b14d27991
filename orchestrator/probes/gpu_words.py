"""What is said about GPUs in words: nvidia-smi's table and errors, NVML's errors, the driver's lines in a kernel log.

Kind `nvml` of `orch read`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.probes.finding import Finding
from orchestrator.probes.gpu_apps import AppRow
from orchestrator.probes.gpu_csv import GpuRow
from orchestrator.probes.gpu_table import TableMigDevice, read_table
from orchestrator.probes.gpu_trouble import troubles_in
from orchestrator.probes.spans import Located, said_lines
from orchestrator.probes.xid import Xid, XidIncident, incidents, xid_in


@dataclass(frozen=True)
class GpuWords(Located):
    findings: tuple[Finding, ...]
    incidents: tuple[XidIncident, ...]
    """The Xid lines, put together by GPU."""
    xids: tuple[Xid, ...]
    gpus: tuple[GpuRow, ...]
    """Of a table, as what follows."""
    mig_devices: tuple[TableMigDevice, ...] = ()
    processes: tuple[AppRow, ...] = ()


def read_gpu_words(text: str) -> GpuWords:
    xids: list[Xid] = []
    others = []
    for line in said_lines(text):
        xid = xid_in(line)
        if xid is None:
            others.append(line)
        else:
            xids.append(xid)
    table = read_table(others)
    findings = (*troubles_in(others), *table.findings)
    return GpuWords(findings, incidents(xids), tuple(xids), table.gpus, table.mig_devices, table.processes)
