"""What will be compiled: every shape, on every device, with and without gradients, known before anything runs.

Rule: pure. The recompile limit comes from this list and from nowhere else: torch's own (8, for all devices of a process
together) is passed by three replicas with three lengths, and what is past it runs eagerly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from config import Config

MOST_STATIC_LENGTHS = 4
LIMIT_SLACK = 8
"""Entries the plan does not foresee: a recompile is reported, a fallback would end the run."""


@dataclass(frozen=True)
class CompileItem:
    device: str
    rows: int
    context: int
    queries: int
    grad: bool

    def __str__(self) -> str:
        mode = "with" if self.grad else "without"
        return f"attention {self.rows} x {self.queries} over {self.context} {mode} gradients on {self.device}"


@dataclass(frozen=True)
class CompilePlan:
    items: Tuple[CompileItem, ...]
    dynamic: bool
    """More lengths than are worth compiling one by one: one kernel for all of them."""

    @property
    def recompile_limit(self) -> int:
        return len(self.items) + LIMIT_SLACK

    @property
    def least_graphs(self) -> Dict[str, int]:
        """Device -> compiled graphs that the cache holds at least once all is compiled: a forward one for each kernel,
        and a backward one with gradients."""
        kernels = {(item.device, item.grad, None if self.dynamic else item.context) for item in self.items}
        found: Dict[str, int] = {}
        for device, grad, _ in kernels:
            found[device] = found.get(device, 0) + (2 if grad else 1)
        return dict(sorted(found.items()))


def length_buckets(longest: int, count: int) -> List[int]:
    """Ascending, at most `count`; sequences are filled up to the next of them. The last is `longest`."""
    return sorted({-(-longest * part // count) for part in range(1, count + 1)})


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    return next((bucket for bucket in buckets if length <= bucket), buckets[-1])


def compile_plan(config: Config, longest: int, devices: Sequence[str]) -> CompilePlan:
    """longest: tokens of the longest row; devices: those of the drafters. Nothing is compiled for a CPU."""
    buckets = length_buckets(longest, config.train.length_buckets)
    dynamic = len(buckets) > MOST_STATIC_LENGTHS
    # One dynamic kernel serves all lengths; the second length proves that it does.
    lengths = [buckets[0], buckets[-1]] if dynamic else buckets
    items = [
        CompileItem(device, config.train.batch, length, config.train.anchors * config.block_size, grad=True)
        for device in dict.fromkeys(devices)
        if device != "cpu"
        for length in lengths
    ]
    return CompilePlan(tuple(items), dynamic)
