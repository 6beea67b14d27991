"""Who uses the GPUs: what nvidia-smi and the agent's gpu_holders tell, and whether the memory is explained by it.

Rule: pure; what is not known is None and explains nothing. Memory counts as free only when every MiB beyond the
driver's own is somebody else's who says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.probes.gpu_apps import FIELDS, read_apps
from orchestrator.probes.gpu_csv import read_gpu_csv
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_int, as_mapping, as_str, as_strs

MEMORY_FIELDS = ("index", "uuid", "memory.used")
APP_FIELDS = FIELDS
DRIVER_OWN_MIB = 64
"""What the driver itself may hold of a GPU that nobody uses; an idle data centre GPU shows 0 to some 20 MiB."""

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]+")


@dataclass(frozen=True)
class GpuMemory:
    index: int
    uuid: str
    used_mib: int | None


@dataclass(frozen=True)
class ComputeApp:
    gpu_uuid: str
    pid: int
    """The host's number, wherever it was asked."""
    used_mib: int | None


@dataclass(frozen=True)
class HostProcess:
    """A process as the host sees it."""

    pid: int
    start_ticks: int
    state: str
    command: str
    devices: tuple[str, ...]
    """nvidia0, nvidia-uvm, ..."""
    container: int | None
    """None: of no container, or not known."""
    ns_pids: tuple[int, ...]

    @property
    def container_pid(self) -> int | None:
        return self.ns_pids[1] if len(self.ns_pids) >= 2 else None


@dataclass(frozen=True)
class GpuVerdict:
    index: int
    used_mib: int | None
    free: bool | None
    """Of this container; None: not known."""
    why: str


def parse_memory(text: str) -> tuple[GpuMemory, ...]:
    """Rows of --query-gpu=MEMORY_FIELDS; what is no row is left out."""
    return tuple(
        GpuMemory(row.index, row.uuid, row.memory_used_mib)
        for row in read_gpu_csv(text, MEMORY_FIELDS).gpus
        if row.index is not None and row.uuid is not None and _UUID.fullmatch(row.uuid)
    )


def parse_apps(text: str) -> tuple[ComputeApp, ...]:
    """Rows of --query-compute-apps=APP_FIELDS. One that does not say which GPU, or which process, is left out."""
    return tuple(
        ComputeApp(row.gpu_uuid, row.pid, row.used_mib)
        for row in read_apps(text, APP_FIELDS).processes
        if row.gpu_uuid is not None and _UUID.fullmatch(row.gpu_uuid)
    )


def parse_holders(answer: Mapping[str, object]) -> tuple[HostProcess, ...]:
    """`answer` of gpu_holders. A process without a number or a start time is left out: it cannot be told again."""
    found = []
    rows = answer.get("processes")
    for raw in map(as_mapping, rows if isinstance(rows, list) else []):
        pid, ticks = as_int(raw.get("pid")), as_int(raw.get("start_ticks"))
        numbers = raw.get("ns_pids")
        if pid is not None and ticks is not None:
            found.append(
                HostProcess(
                    pid=pid,
                    start_ticks=ticks,
                    state=as_str(raw.get("state")) or "?",
                    command=command_text(as_strs(raw.get("argv"))),
                    devices=as_strs(raw.get("devices")),
                    container=as_int(raw.get("container")),
                    ns_pids=tuple(n for n in numbers if isinstance(n, int)) if isinstance(numbers, list) else (),
                )
            )
    return tuple(found)


def command_text(argv: Sequence[str]) -> str:
    return one_line(" ".join(argv), 200)


def is_monitor(process: HostProcess, apps: Iterable[ComputeApp]) -> bool:
    """It only looks: nvidia-smi itself, and no memory is told of it."""
    program = process.command.split(" ", 1)[0].rsplit("/", 1)[-1]
    return program == "nvidia-smi" and all(app.pid != process.pid for app in apps)


def judge_memory(
    gpus: Sequence[GpuMemory],
    apps: Sequence[ComputeApp] | None,
    processes: Sequence[HostProcess],
    container: int | None,
) -> tuple[GpuVerdict, ...]:
    """Is each GPU free of this container? apps None: nobody could say which processes use them."""
    seen = {process.pid: process for process in processes}
    return tuple(_judge(gpu, apps, seen, container) for gpu in gpus)


def _judge(
    gpu: GpuMemory, apps: Sequence[ComputeApp] | None, seen: Mapping[int, HostProcess], container: int | None
) -> GpuVerdict:
    here = [app for app in apps or () if app.gpu_uuid == gpu.uuid]
    monitors = {process.pid for process in seen.values() if is_monitor(process, apps or ())}
    holders = [p for p in seen.values() if f"nvidia{gpu.index}" in p.devices and p.pid not in monitors]
    ours = {p.pid for p in seen.values() if container is not None and p.container == container}
    mine = sorted({app.pid for app in here if app.pid in ours} | {p.pid for p in holders if p.pid in ours})
    if mine:
        return GpuVerdict(gpu.index, gpu.used_mib, False, f"held by pid {', '.join(map(str, mine))} of this container")
    if gpu.used_mib is None:
        return GpuVerdict(gpu.index, None, None, "nvidia-smi does not say how much memory is used")
    others = sorted({app.pid for app in here} | {p.pid for p in holders})
    theirs = [app.used_mib for app in here]
    known = sum(used for used in theirs if used is not None)
    left = gpu.used_mib - known
    if left <= DRIVER_OWN_MIB:
        by = f", {known} MiB of it others' (pid {', '.join(map(str, others))})" if known else ""
        return GpuVerdict(gpu.index, gpu.used_mib, True, f"{gpu.used_mib} MiB used{by}")
    if apps is None or None in theirs or set(others) - {app.pid for app in here}:
        about = f"pid {', '.join(map(str, others))} may hold it" if others else "no list of processes"
        return GpuVerdict(gpu.index, gpu.used_mib, None, f"{left} MiB of {gpu.used_mib} unexplained: {about}")
    gone = [app.pid for app in here if app.pid not in seen]
    extra = f" (pid {', '.join(map(str, gone))} is listed and does not exist)" if gone else ""
    return GpuVerdict(gpu.index, gpu.used_mib, False, f"{left} MiB of {gpu.used_mib} explained by no process{extra}")
