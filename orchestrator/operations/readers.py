"""The kinds of captured output that `orch read` knows, each with the parser that status and the other verbs use.

A reader takes the text and returns a dataclass of facts, whose `spans` say where each value stands (probes/spans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.operations.read_failures import read_pct, read_ssh
from orchestrator.operations.read_inventory import read_inventory_text
from orchestrator.probes.disk import read_disk
from orchestrator.probes.gpu_apps import read_apps
from orchestrator.probes.gpu_csv import read_gpu_csv
from orchestrator.probes.gpu_words import read_gpu_words
from orchestrator.probes.gpu_xml import read_gpu_xml
from orchestrator.probes.import_failure import read_import_failure
from orchestrator.probes.log_reading import read_log
from orchestrator.probes.pip_output import read_pip_output


@dataclass(frozen=True)
class Reader:
    read: Callable[[str], object]
    summary: str
    read_fields: Callable[[str, Sequence[str]], object] | None = None
    """For output whose columns only the asker knows."""


READERS: dict[str, Reader] = {
    "smi-csv": Reader(read_gpu_csv, "nvidia-smi --query-gpu=... --format=csv", read_gpu_csv),
    "log": Reader(read_log, "a training's log, a pane, a kernel log: progress, tracebacks, failures and their cause"),
    "import": Reader(read_import_failure, "an import that failed: tracebacks, the dynamic linker's words, ldd"),
    "pip": Reader(read_pip_output, "pip, uv pip, conda: list, freeze, check, install, show, inspect"),
    "smi-apps": Reader(read_apps, "nvidia-smi --query-compute-apps=... --format=csv", read_apps),
    "smi-xml": Reader(read_gpu_xml, "nvidia-smi -q -x"),
    "nvml": Reader(read_gpu_words, "nvidia-smi's table or error, NVML's error, NVRM and Xid lines of a kernel log"),
    "ssh": Reader(read_ssh, "what ssh, or a program around it, says when a connection fails"),
    "pct": Reader(read_pct, "what pct and lxc-attach say when a container cannot be entered or started"),
    "disk": Reader(read_disk, "df, du, zfs, lvs, quota, and what programs say when they cannot write"),
    "inventory": Reader(read_inventory_text, "inventory.yaml, or another YAML file, as the strict loader reads it"),
}


def read_as(kind: str, text: str, fields: Sequence[str] | None = None) -> object:
    """Raises UsageError for a kind that is none, and for fields that the kind has no use for."""
    reader = READERS.get(kind)
    if reader is None:
        raise UsageError(f"`{kind}` is not a kind of output that orch reads", way_out=f"one of: {', '.join(READERS)}")
    if fields is None:
        return reader.read(text)
    if reader.read_fields is None:
        raise UsageError(f"--fields has no meaning for {kind}", way_out=f"orch read {kind} FILE")
    return reader.read_fields(text, fields)
