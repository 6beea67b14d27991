"""What is known of one GPU, however it was asked: NVML, nvidia-smi's CSV or its XML.

Rule: a value that is not there is None, never 0; units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass

FIELDS = ("index", "name", "memory.total", "memory.used", "utilization.gpu")
QUESTION = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
"""argv: the one way in which it is asked for the GPUs."""


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
