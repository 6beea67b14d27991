"""GPUs that were asked several times: what one moment shows is told from what lasts.

Rule: pure; a GPU is the same by its UUID, else by its index; one that did not answer each time has no swing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.probes.gpu import GpuFact

LEAST = 4
"""Fewer samples tell nothing of a swing."""
LEAST_MIB = 1024
"""A GPU that was never used more is not the training's."""

Sample = tuple[GpuFact, ...]


def lasting(samples: Sequence[Sample]) -> Sample:
    """The last sample, with those reasons of throttling only that each of them had, and the highest clock of all."""
    if not samples:
        return ()
    found = []
    for gpu in samples[-1]:
        seen = [one for sample in samples for one in sample if _name(one) == _name(gpu)]
        reasons = [set(one.throttle) for one in seen if one.throttle is not None]
        kept = None if not reasons else tuple(r for r in gpu.throttle or () if all(r in each for each in reasons))
        clocks = [one.sm_clock_mhz for one in seen if one.sm_clock_mhz is not None]
        found.append(replace(gpu, throttle=kept, sm_clock_mhz=max(clocks, default=None)))
    return tuple(found)


def memory_swing(samples: Sequence[Sample]) -> float | None:
    """How much of its highest use a GPU's memory went up and down by, of the GPU that moved most; 0 to 1."""
    if len(samples) < LEAST:
        return None
    swings = []
    for gpu in samples[-1]:
        used = [one.memory_used_mib for sample in samples for one in sample if _name(one) == _name(gpu)]
        known = [mib for mib in used if mib is not None]
        if len(known) == len(samples) and max(known) >= LEAST_MIB:
            swings.append((max(known) - min(known)) / max(known))
    return max(swings, default=None)


def _name(gpu: GpuFact) -> object:
    return gpu.uuid or gpu.index
