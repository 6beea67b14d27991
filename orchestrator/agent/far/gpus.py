"""Op gpus, and the GPUs of op watch: NVML's word where its library is there, else nvidia-smi's.

Rule: facts, no judgement. A driver that hangs delays the answer by its deadline and nothing else.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Tuple

from .commands import run_command
from .driver import driver_version
from .nvml_child import NvmlChild, ask_once
from .smi import Repeated

Record = Dict[str, Any]

NODES_S = 10.0
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers; the rest of a card (audio, USB, bridges) is none."""
_NODE = re.compile(r"nvidia(\d{1,4})")


def gpus(params: Record, body: bytes, channel: Any) -> Record:
    """params: deadline_s, smi (argv). {nodes, nvml: the child's word, smi: run_batch's result or None (not asked)}"""
    timeout_s = float(params["deadline_s"])
    word, fall_back = ask_once(timeout_s, channel.cancelled, params.get("library"))
    channel.check()
    smi = None
    if fall_back:
        smi = run_command({"argv": params["smi"], "timeout_s": timeout_s}, channel.cancelled)
        channel.check()
    return {"nodes": nodes(), "nvml": word, "smi": smi}


class Gpus:
    """For a watch: `start`, `word`, `stop`."""

    def __init__(self, params: Record) -> None:
        """params: interval_s; smi {argv, columns, interval_s}; library (for tests)."""
        smi = params["smi"]
        self._nvml = NvmlChild(float(params["interval_s"]), params.get("library"))
        self._smi = Repeated(smi["argv"], int(smi["columns"]), int(smi["interval_s"]))
        self._smi_runs = False
        self._nodes: Record = {}
        self._nodes_due = float("-inf")

    def start(self) -> None:
        self._nvml.start()

    def stop(self) -> None:
        self._nvml.stop()
        if self._smi_runs:
            self._smi.stop()

    def word(self) -> Tuple[Record, float | None]:
        """{nodes, nvml: {told, failed, error}, smi: {rows, error} or None (not asked)}, and how old that is."""
        now = time.monotonic()
        if now >= self._nodes_due:
            self._nodes, self._nodes_due = nodes(), now + NODES_S
        if self._nvml.is_missing and not self._smi_runs:
            self._smi_runs = True
            self._smi.start()
        nvml, smi = self._nvml.word(), self._smi.word() if self._smi_runs else None
        age_s = nvml.pop("age_s") if smi is None else smi.pop("age_s")
        return {"nodes": self._nodes, "nvml": nvml, "smi": smi}, age_s


def nodes(root: str = "/") -> Record:
    """What is there of GPUs beside the driver's word: {on_bus: GPUs that the PCI bus shows, which in a container are
    the host's; nodes: [i of /dev/nvidia<i>]; uvm: whether CUDA's node is there; driver: the kernel module's version}.
    None: cannot be seen here."""
    return {"on_bus": _on_bus(root), "driver": driver_version(root), **_device_nodes(root)}


def _on_bus(root: str) -> int | None:
    folder = os.path.join(root, "sys/bus/pci/devices")
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    return sum(
        _text(folder, name, "vendor") == NVIDIA and (_text(folder, name, "class") or "")[:6] in GPU_CLASSES
        for name in names
    )


def _text(*path: str) -> str | None:
    try:
        with open(os.path.join(*path), encoding="ascii", errors="replace") as stream:
            return stream.read(4096).strip()
    except OSError:
        return None


def _device_nodes(root: str) -> Record:
    try:
        names = os.listdir(os.path.join(root, "dev"))
    except OSError:
        return {"nodes": None, "uvm": None}
    found = sorted(int(match.group(1)) for match in map(_NODE.fullmatch, names) if match)
    return {"nodes": found, "uvm": "nvidia-uvm" in names}
