"""The container as its own files tell of it: how long it has been up, its memory and its CPU quota.

Rule: a limit that is not written where the container can see it is unknown, never "none".
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.probes.values import as_float, as_int, as_mapping


@dataclass(frozen=True)
class ContainerFact:
    uptime_s: float | None
    memory_used_bytes: int | None
    """What cannot be dropped at need: without the cache of files that were not used lately."""
    memory_limit_bytes: int | None
    cpu_limit_cores: float | None


def parse_container(value: object) -> ContainerFact | None:
    """`container` in the agent's facts. None: nothing was said."""
    raw = as_mapping(value)
    if not raw:
        return None
    return ContainerFact(
        uptime_s=as_float(raw.get("uptime_s")),
        memory_used_bytes=as_int(raw.get("memory_used_bytes")),
        memory_limit_bytes=as_int(raw.get("memory_limit_bytes")),
        cpu_limit_cores=as_float(raw.get("cpu_limit_cores")),
    )
