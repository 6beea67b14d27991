"""GPUs as `nvidia-smi --query-gpu=index,name,memory.total,memory.used,utilization.gpu --format=csv,noheader,nounits`
tells of them.

Rule: a row has exactly these five values or it is no row; a value that is no whole number is unknown, never 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIELDS = ("index", "name", "memory.total", "memory.used", "utilization.gpu")
QUESTION = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
"""argv: the one way in which it is asked for the GPUs."""

_NUMBER = re.compile(r"[0-9]{1,12}")
_ABSENT = re.compile(r"\[.*\]|N/A|ERR!|\(null\)|")


@dataclass(frozen=True)
class GpuProcess:
    """One that the driver lists as computing on the GPU."""

    pid: int
    """The host's number, wherever it was asked."""
    used_mib: int | None
    name: str | None = None


@dataclass(frozen=True)
class GpuFact:
    """What is not asked, or not answered, is null."""

    index: int | None
    name: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    utilization_percent: int | None = None
    uuid: str | None = None
    bus: str | None = None
    """As nvidia-smi writes it: `00000000:19:00.0`."""
    memory_utilization_percent: int | None = None
    """Part of the time in which memory was read or written."""
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    performance_state: str | None = None
    """`P0` (fastest) to `P15`."""
    throttle: tuple[str, ...] | None = None
    """Why the clocks are not higher, by nvidia-smi's names (`sw_power_cap`); empty: for no reason."""
    ecc_corrected: int | None = None
    """Since the driver was loaded."""
    ecc_uncorrected: int | None = None
    mig: bool | None = None
    """Whether it is cut into MIG instances."""
    processes: tuple[GpuProcess, ...] | None = None
    error: str | None = None
    """Why the driver cannot tell of this one; the others are not touched by that."""


@dataclass(frozen=True)
class GpuAnswer:
    gpus: tuple[GpuFact, ...]
    rejected: tuple[str, ...]
    """Lines that are no row: error sentences (nvidia-smi says them on stdout), wrong number of values."""


def parse_gpu_csv(text: str) -> GpuAnswer:
    gpus, rejected = [], []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if values == [""]:
            continue
        if len(values) != len(FIELDS) or not _could_be_a_row(values):
            rejected.append(line.strip())
            continue
        index, name, total, used, busy = values
        known = None if _ABSENT.fullmatch(name) else name
        gpus.append(GpuFact(_whole(index), known, _whole(total), _whole(used), _whole(busy)))
    return GpuAnswer(tuple(gpus), tuple(rejected))


def _could_be_a_row(values: list[str]) -> bool:
    """Numbers, or one of the known ways to say that there is none, wherever a number belongs."""
    return all(_NUMBER.fullmatch(values[i]) or _ABSENT.fullmatch(values[i]) for i in (0, 2, 3, 4))


def _whole(value: str) -> int | None:
    return int(value) if _NUMBER.fullmatch(value) else None
