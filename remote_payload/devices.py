"""Which device the roles run on.

Rule: a machine with GPUs never falls back to its CPU by itself; a GPU torch cannot use is an error that names it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Tuple

import torch
from config import ConfigError

GPU_NODE = "/dev/nvidia0"


class DeviceError(ConfigError):
    """The wanted device cannot be used."""


@dataclass(frozen=True)
class Placement:
    targets: Tuple[torch.device, ...]
    drafters: Tuple[torch.device, ...]
    note: str
    """One line for the log: who shares what."""

    @property
    def device(self) -> torch.device:
        """Where what is done once is done: the text, the evaluation."""
        return self.targets[0]


def gpu_node_exists(path: str) -> bool:
    """A driver's node is a character device; a file that only has its name is a double of one."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def choose_device(wanted: str, *, cuda_works: bool, gpu_node_exists: bool) -> torch.device:
    """Raises DeviceError."""
    if wanted == "cpu":
        return torch.device("cpu")
    if cuda_works:
        return torch.device("cuda", 0)
    if gpu_node_exists:
        build = torch.version.cuda or "no CUDA at all"
        raise DeviceError(
            f"{GPU_NODE} is there, but torch {torch.__version__} (built for {build}) cannot use it; "
            f"install a CUDA build of torch that fits the driver, or set device=cpu to use the CPU on purpose"
        )
    if wanted == "cuda":
        raise DeviceError(f"device=cuda, but this machine has no {GPU_NODE} and torch {torch.__version__} sees no GPU")
    return torch.device("cpu")


def choose_engine(wanted: str, placement: Placement) -> str:
    """threads or processes. Raises DeviceError."""
    roles = (*placement.targets, *placement.drafters)
    own_gpus = placement.device.type == "cuda" and len(set(roles)) == len(roles)
    if wanted == "processes" and placement.device.type == "cuda" and not own_gpus:
        raise DeviceError("engine=processes gives each target and each drafter a GPU of its own, and there is one GPU")
    if wanted == "auto":
        return "processes" if own_gpus else "threads"
    return wanted


def alike(device: torch.device, *, targets: int, drafters: int) -> Placement:
    """As a process of a run with one process a device sees it: whatever the others have, it calls it the same."""
    note = (
        f"{targets} target(s), {drafters} drafter(s), a process and a {'GPU' if device.type == 'cuda' else 'CPU'} each"
    )
    return Placement((device,) * targets, (device,) * drafters, note)


def place(wanted: str, *, targets: int, drafters: int) -> Placement:
    """Raises DeviceError."""
    device = choose_device(wanted, cuda_works=torch.cuda.is_available(), gpu_node_exists=gpu_node_exists(GPU_NODE))
    return spread(
        device,
        gpus=torch.cuda.device_count() if device.type == "cuda" else 0,
        as_asked=wanted != "auto",
        targets=targets,
        drafters=drafters,
    )


def spread(device: torch.device, *, gpus: int, as_asked: bool, targets: int, drafters: int) -> Placement:
    """One GPU each when there are enough. Raises DeviceError when there are several, but too few.

    A CPU or a single GPU is shared: by one target and one drafter, or, where the device was named on purpose, by as
    many as were asked for.
    """
    if gpus >= targets + drafters:
        each = [torch.device("cuda", index) for index in range(targets + drafters)]
        return Placement(
            tuple(each[:targets]), tuple(each[targets:]), f"{targets} target(s), {drafters} drafter(s), a GPU each"
        )
    asked = f"asked for {targets} target(s) and {drafters} drafter(s)"
    if gpus > 1:
        raise DeviceError(f"{asked}, but torch sees {gpus} GPUs; ask for fewer, or let it see more (nvidia-smi)")
    where = f"{os.cpu_count()} CPU cores" if device.type == "cpu" else torch.cuda.get_device_name(device)
    if as_asked:
        return Placement((device,) * targets, (device,) * drafters, f"device {device}: {asked}, all sharing {where}")
    note = f"device {device}: {asked}; one target thread and one drafter serve them, sharing {where}"
    return Placement((device,), (device,), note)
