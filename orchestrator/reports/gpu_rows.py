"""PURE: the GPUs, a row each.

Rule: numbers first, and none of them is clipped; what nobody told has no column. A GPU that does not answer has its
reason in its row, and the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.probes.gpu import GpuFact
from orchestrator.reports.fitting import text_width
from orchestrator.reports.table import DASH, number_text

SLOWED = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "slowed by hardware",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "hot: slowed",
    "hw_thermal_slowdown": "hot: slowed by hardware",
    "hw_power_brake_slowdown": "power brake",
}
"""Throttle reasons that mean less speed than there could be; idle and a chosen clock do not."""


def gpu_rows(gpus: Sequence[GpuFact], roles: Sequence[str | None], width: int) -> list[str]:
    """Without the index. Columns that nobody has a value for are left out, and then those that do not fit, from the
    right."""
    well = [gpu for gpu in gpus if gpu.error is None]
    roles = roles if len(roles) == len(gpus) else [None] * len(gpus)
    columns: list[list[str]] = []
    if any(roles):
        columns.append([role or DASH for role in roles])
    columns.append(_right([f"{number_text(g.memory_used_mib)} of {number_text(g.memory_total_mib)} MiB" for g in gpus]))
    columns.append(_right([DASH if g.utilization_percent is None else f"{g.utilization_percent} %" for g in gpus]))
    optional: list[tuple[Callable[[GpuFact], object], Callable[[GpuFact], str]]] = [
        (lambda g: g.power_w, lambda g: DASH if g.power_w is None else f"{g.power_w:.0f} W"),
        (lambda g: g.temperature_c, lambda g: DASH if g.temperature_c is None else f"{g.temperature_c} °C"),
        (lambda g: g.sm_clock_mhz, lambda g: DASH if g.sm_clock_mhz is None else f"{g.sm_clock_mhz} MHz"),
    ]
    for value, said in optional:
        if any(value(gpu) is not None for gpu in well):
            columns.append(_right([said(gpu) for gpu in gpus]))
    if any(map(slowed, well)):
        columns.append(_left([", ".join(slowed(gpu)) or "" for gpu in gpus]))
    columns.append([gpu.name or DASH for gpu in gpus])
    while len(columns) > 3 and sum(text_width(max(c, key=text_width)) + 2 for c in columns[:-1]) > width + 2:
        del columns[-2]
    rows = ["  ".join(cells).rstrip() for cells in zip(*map(_left, columns), strict=True)]
    return [f"{role or ''}  {gpu.error}".strip() if gpu.error else row
            for gpu, role, row in zip(gpus, roles, rows, strict=True)]  # fmt: skip


def slowed(gpu: GpuFact) -> list[str]:
    return [SLOWED[reason] for reason in gpu.throttle or () if reason in SLOWED]


def _left(cells: Sequence[str]) -> list[str]:
    wide = max(map(text_width, cells))
    return [cell + " " * (wide - text_width(cell)) for cell in cells]


def _right(cells: Sequence[str]) -> list[str]:
    wide = max(map(text_width, cells))
    return [" " * (wide - text_width(cell)) + cell for cell in cells]
