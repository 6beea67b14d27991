"""Which GPU does what in a run: runtime.json's devices beside the driver's GPUs.

Rule: pure; told by the payload or not known. A device is found by its UUID; by its place only where nothing says that
the training counts its GPUs in another way than the driver does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_mapping, as_str, as_strs


def gpu_roles(gpus: Sequence[GpuFact], runtime: Mapping[str, object] | None) -> tuple[str | None, ...]:
    """One for each of gpus; empty when no role is known. runtime: runtime.json of a run that lives."""
    listed = (runtime or {}).get("devices")
    devices = [as_mapping(device) for device in listed] if isinstance(listed, list) else []
    named = [(as_str(device.get("uuid")), _roles(device)) for device in devices]
    by_uuid = {uuid: roles for uuid, roles in named if uuid}
    if all(uuid is None for uuid, _ in named) or all(gpu.uuid is None for gpu in gpus):
        found = tuple(roles for _, roles in named) if len(named) == len(gpus) else ()
    else:
        found = tuple(by_uuid.get(gpu.uuid) if gpu.uuid else None for gpu in gpus)
    return found if any(found) else ()


def _roles(device: Mapping[str, object]) -> str | None:
    return one_line("+".join(as_strs(device.get("roles"))), 24) or None
