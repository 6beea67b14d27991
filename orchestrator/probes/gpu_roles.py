"""Which GPU does what in a run: runtime.json's ranks or devices beside the driver's GPUs.

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
    ranks = [(as_str(rank.get("uuid")), as_str(rank.get("role"))) for rank in _records(runtime, "ranks")]
    if by_uuid := {uuid: one_line(role, 24) for uuid, role in ranks if uuid and role}:
        return _found(gpus, by_uuid)
    devices = [(as_str(device.get("uuid")), _roles(device)) for device in _records(runtime, "devices")]
    if any(uuid for uuid, _ in devices) and any(gpu.uuid for gpu in gpus):
        return _found(gpus, {uuid: roles for uuid, roles in devices if uuid and roles})
    found = tuple(roles for _, roles in devices) if len(devices) == len(gpus) else ()
    return found if any(found) else ()


def _records(runtime: Mapping[str, object] | None, name: str) -> list[Mapping[str, object]]:
    listed = (runtime or {}).get(name)
    return [as_mapping(record) for record in listed] if isinstance(listed, list) else []


def _found(gpus: Sequence[GpuFact], by_uuid: Mapping[str, str]) -> tuple[str | None, ...]:
    found = tuple(by_uuid.get(gpu.uuid) if gpu.uuid else None for gpu in gpus)
    return found if any(found) else ()


def _roles(device: Mapping[str, object]) -> str | None:
    return one_line("+".join(as_strs(device.get("roles"))), 24) or None
