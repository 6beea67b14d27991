"""disk-full, shm-small, memory: does the target have what a run needs?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.diagnosis.case import Case
from orchestrator.diagnosis.finding import CRITICAL, WARNING, Finding
from orchestrator.diagnosis.signatures.words import failure_lines, failures
from orchestrator.probes.units import bytes_text

GIB = 1024**3
LOW_INODES = 1000
NOTHING_LEFT_BYTES = 16 * 1024**2
"""No room for a checkpoint, or soon for a line of a log, however little the payload says that it wants."""
MEMORY_SHARE = 0.97
"""Of the container's limit, without the cache that can be dropped: the kernel ends processes at 1."""
DISK_KINDS = ("disk_full", "disk_quota", "inodes_full", "checkpoint_write", "read_only")
SHM_KINDS = ("shm_full", "bus_error")
HOST_KINDS = ("host_oom_kill", "host_memory")


def disk(case: Case) -> Iterator[Finding]:
    by_log = [line for one in failures(case, *DISK_KINDS) for line in failure_lines(case, one)]
    free = case.machine.disk_free_bytes if case.machine is not None else None
    inodes = case.machine.inodes_free if case.machine is not None else None
    wanted = (case.payload.min_free_disk_gib if case.payload is not None else 1.0) * GIB
    low = free is not None and free < max(wanted, NOTHING_LEFT_BYTES)
    full = free is not None and free < max(wanted / 4, NOTHING_LEFT_BYTES)
    none_left = inodes is not None and inodes < LOW_INODES
    if not by_log and not low and not none_left:
        return
    evidence = list(by_log)
    evidence += [f"{bytes_text(free)} free now; the payload wants {bytes_text(wanted)}"] if free is not None else []
    evidence += [f"{inodes} inodes free"] if none_left else []
    yield Finding(
        "disk-full",
        CRITICAL if by_log or none_left or full else WARNING,
        "the disk is full, or nearly: checkpoints and caches cannot be written",
        tuple(evidence),
        "old checkpoints, snapshots of the cache, releases and environments grow with each run",
        "free space: drop old snapshots of the cache, pull and remove old checkpoints",
        case.orch("cache", "drop", "--keep", "2", "--dry-run"),
    )


def shm(case: Case) -> Iterator[Finding]:
    by_log = [line for one in failures(case, *SHM_KINDS) for line in failure_lines(case, one)]
    if not by_log:
        return
    free = case.machine.shm_free_bytes if case.machine is not None else None
    evidence = (*by_log, *((f"/dev/shm has {bytes_text(free)} free now",) if free is not None else ()))
    yield Finding(
        "shm-small",
        CRITICAL,
        "/dev/shm was too small for what the data workers handed over",
        evidence,
        "the container's /dev/shm is a small one, or something left its files there",
        "enlarge /dev/shm in the container's configuration on the host, or use fewer data workers",
        case.orch("exec", "--", "df", "-h", "/dev/shm"),
    )


def memory(case: Case) -> Iterator[Finding]:
    killed = (
        case.run.record.state.exit.oom_kills if case.run and case.run.record and case.run.record.state.exit else None
    )
    host = [line for one in failures(case, *HOST_KINDS) for line in failure_lines(case, one)]
    gpu = [line for one in failures(case, "cuda_oom") if not one.survived for line in failure_lines(case, one)]
    evidence = [*host, *gpu]
    evidence += [f"{killed} of its processes were killed for want of memory"] if killed else []
    unrecorded = case.run.record.state.evidence if case.run is not None and case.run.record is not None else ()
    evidence += [text for text in unrecorded if "want of memory" in text and not killed]
    container = case.container
    used = container.memory_used_bytes if container is not None else None
    limit = container.memory_limit_bytes if container is not None else None
    full = bool(used and limit and used > MEMORY_SHARE * limit)
    if used is not None and limit is not None and (full or evidence):
        evidence.append(f"the container uses {bytes_text(used)} of {bytes_text(limit)} now")
    if not evidence:
        return
    of_gpu = bool(gpu) and not host and not killed and not full
    yield Finding(
        "memory",
        CRITICAL if host or gpu or killed or (len(evidence) > 1 and not full) else WARNING,
        "a GPU ran out of memory"
        if of_gpu
        else "the memory of the container ran out"
        if not full
        else "the memory of the container is nearly full",
        tuple(evidence),
        "code that runs uncompiled takes several times the memory; else longer sequences, a larger batch, or another "
        "process on that GPU"
        if of_gpu
        else "data workers, pinned memory and caches grow with the data",
        "look whether it trained compiled and alone on its GPUs (findings above); then a smaller batch or recomputation"
        if of_gpu
        else "fewer data workers or less prefetching, or raise the container's memory on the host",
        case.logs("--traceback"),
    )
