"""What is said about GPUs in words: nvidia-smi's table and errors, NVML's errors, the driver's lines in a kernel log.

Kind `nvml` of `orch read`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.probes.finding import Finding
from orchestrator.probes.gpu_apps import AppRow
from orchestrator.probes.gpu_csv import GpuRow
from orchestrator.probes.gpu_query_text import QueryTextReader
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
    """Of a table or of `nvidia-smi -q`, as what follows."""
    mig_devices: tuple[TableMigDevice, ...] = ()
    processes: tuple[AppRow, ...] = ()


def read_gpu_words(text: str) -> GpuWords:
    xids: list[Xid] = []
    others = []
    query = QueryTextReader()
    for line in said_lines(text):
        if query.take(line):
            continue
        xid = xid_in(line)
        if xid is None:
            others.append(line)
        else:
            xids.append(xid)
    query.end()
    table = read_table(others)
    findings = (*troubles_in(others), *table.findings, *query.findings)
    gpus, processes = (*table.gpus, *query.gpus), (*table.processes, *query.processes)
    return GpuWords(findings, incidents(xids), tuple(xids), gpus, table.mig_devices, processes)
