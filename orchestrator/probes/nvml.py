"""What the agent's NVML program says -> the same facts as nvidia-smi's, and what is wrong, in words.

Rule: pure; a value of the wrong type, or that the driver does not answer, is None. Units are nvidia-smi's: a MiB that
has begun counts whole, and power has two decimals, so that both readers give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.gpu import GpuFact, GpuProcess
from orchestrator.probes.gpu_values import throttle_reasons
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_bool, as_int, as_mapping, as_str

MIB = 2**20
UNKNOWN_STATE = 32
MISMATCH, UNKNOWN = 18, 999


@dataclass(frozen=True)
class Nodes:
    """What there is of GPUs beside the driver's word."""

    on_bus: int | None
    """GPUs that the PCI bus shows; in a container, the host's."""
    nodes: int | None
    """/dev/nvidia0, 1, ..."""
    uvm: bool | None
    """Whether CUDA's own node is there."""
    driver: str | None
    """The kernel module's version."""


def parse_nvml(told: Mapping[str, object]) -> tuple[GpuFact, ...]:
    """told: one line of nvml.py."""
    rows = told.get("gpus")
    return tuple(_gpu(as_mapping(row)) for row in (rows if isinstance(rows, list) else []))


def parse_nodes(raw: Mapping[str, object]) -> Nodes:
    found = raw.get("nodes")
    return Nodes(
        on_bus=as_int(raw.get("on_bus")),
        nodes=len(found) if isinstance(found, list) else None,
        uvm=as_bool(raw.get("uvm")),
        driver=as_str(raw.get("driver")),
    )


def _gpu(row: Mapping[str, object]) -> GpuFact:
    power, limit = as_int(row.get("power_mw")), as_int(row.get("power_limit_mw"))
    state, mig = as_int(row.get("performance_state")), as_int(row.get("mig_mode"))
    return GpuFact(
        index=as_int(row.get("index")),
        name=_text(row.get("name")),
        memory_total_mib=_mib(row.get("memory_total_bytes")),
        memory_used_mib=_mib(row.get("memory_used_bytes")),
        utilization_percent=as_int(row.get("utilization_percent")),
        uuid=_text(row.get("uuid")),
        bus=_text(row.get("bus")),
        memory_utilization_percent=as_int(row.get("memory_utilization_percent")),
        temperature_c=as_int(row.get("temperature_c")),
        power_w=None if power is None else round(power / 1000, 2),
        power_limit_w=None if limit is None else round(limit / 1000, 2),
        sm_clock_mhz=as_int(row.get("sm_clock_mhz")),
        sm_clock_max_mhz=as_int(row.get("sm_clock_max_mhz")),
        memory_clock_mhz=as_int(row.get("memory_clock_mhz")),
        performance_state=None if state is None or state == UNKNOWN_STATE else f"P{state}",
        throttle=_throttle(row.get("throttle_bits")),
        ecc_corrected=as_int(row.get("ecc_corrected")),
        ecc_uncorrected=as_int(row.get("ecc_uncorrected")),
        mig=None if mig is None else mig == 1,
        processes=_processes(row.get("processes")),
        error=_error(as_mapping(row.get("error"))),
    )


def _text(value: object) -> str | None:
    text = as_str(value)
    return one_line(text) or None if text else None


def _mib(value: object) -> int | None:
    size = as_int(value)
    return None if size is None else -(-size // MIB)


def _throttle(value: object) -> tuple[str, ...] | None:
    bits = as_int(value)
    if bits is None or bits < 0:
        return None
    return throttle_reasons(f"{bits:#x}") if bits < 2**64 else None


def _processes(value: object) -> tuple[GpuProcess, ...] | None:
    if not isinstance(value, list):
        return None
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    return tuple(GpuProcess(pid, _mib(used)) for pid, used in pairs if as_int(pid) is not None)


def _error(error: Mapping[str, object]) -> str | None:
    if not error:
        return None
    return f"{one_line(as_str(error.get('text')) or 'no answer')} (NVML code {as_int(error.get('code'))})"


def failure_text(failed: Mapping[str, object], nodes: Nodes) -> str:
    """Why NVML as a whole does not work, and what helps. failed: nvml.py's error."""
    code = as_int(failed.get("code"))
    said = one_line(as_str(failed.get("text")) or "no answer")
    text = f"NVML: {said}" + ("" if code is None else f" (code {code})")
    control = as_str(failed.get("control_node"))
    if code == MISMATCH:
        library = (as_str(failed.get("library")) or "").rpartition(".so.")[2]
        parts = [f"the kernel module is {nodes.driver}"] if nodes.driver else []
        parts += [f"the library {one_line(library)}"] if library.count(".") else []
        return f"{text}: {', '.join(parts) or 'the driver was updated'}; reload the driver or restart the host"
    if control in ("EPERM", "EACCES"):
        return f"{text}: /dev/nvidiactl may not be opened ({control}), the container has lost its GPUs: restart it"
    if control == "ENOENT":
        return f"{text}: there is no /dev/nvidiactl here"
    if code == UNKNOWN:
        return f"{text}: look into the host's kernel log for NVRM"
    return text


def warnings(gpus: tuple[GpuFact, ...] | None, nodes: Nodes) -> tuple[str, ...]:
    """What is wrong around the GPUs, in sentences."""
    found = [f"GPU {gpu.index}: {gpu.error}" for gpu in gpus or () if gpu.error]
    if gpus is not None:
        seen = sum(gpu.error is None for gpu in gpus)
        if nodes.nodes is not None and len(gpus) < nodes.nodes:
            found.append(f"the driver tells of {len(gpus)} GPUs, and /dev has {nodes.nodes}")
        elif not nodes.nodes and nodes.on_bus is not None and len(gpus) < nodes.on_bus:
            found.append(f"the driver tells of {len(gpus)} GPUs, and the PCI bus has {nodes.on_bus}")
        if seen and nodes.uvm is False:
            found.append("there is no /dev/nvidia-uvm: CUDA cannot start here (on the host: nvidia-modprobe -u -c=0)")
        bad = [gpu for gpu in gpus if gpu.ecc_uncorrected]
        found += [f"GPU {gpu.index}: {gpu.ecc_uncorrected} ECC errors that could not be corrected" for gpu in bad]
    return tuple(found)
