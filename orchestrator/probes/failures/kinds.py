"""The kinds of failure that a log tells of, and the way out of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    CAUSE = "cause"
    CONSEQUENCE = "consequence"
    """Something else failed first, most often: it is the cause only where nothing else is found."""
    DEGRADED = "degraded"
    """The training goes on, slower or worse."""
    NOTICE = "notice"
    """Nothing failed, but it is worth a word."""


@dataclass(frozen=True)
class Kind:
    name: str
    title: str
    role: Role
    remedy: str


_C, _Q, _D, _N = Role.CAUSE, Role.CONSEQUENCE, Role.DEGRADED, Role.NOTICE
_TABLE: tuple[tuple[str, str, Role, str], ...] = (
    (
        "cuda_oom",
        "out of GPU memory",
        _C,
        "smaller batch or sequence, or checkpointing; if another process holds memory, `orch reset`; if much "
        "is reserved but unallocated, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    (
        "host_memory",
        "an allocation in host memory failed",
        _C,
        "fewer data workers or less prefetching; raise the container's memory",
    ),
    (
        "host_oom_kill",
        "ended by the kernel for want of host memory",
        _C,
        "fewer data workers, less pinned memory, stream the data; raise the container's memory",
    ),
    (
        "killed",
        "ended by SIGKILL from outside",
        _C,
        "most often the OOM killer: look at the host's kernel log (`dmesg -T`); else someone's kill -9",
    ),
    (
        "terminated",
        "told to stop by SIGTERM or SIGINT from outside",
        _N,
        "find who stopped it: a scheduler, a time limit, `orch stop`",
    ),
    (
        "device_assert",
        "an assertion on the GPU failed (an index out of range, most often)",
        _C,
        "check token ids against the vocabulary and labels against the classes; run once with "
        "CUDA_LAUNCH_BLOCKING=1 for the true stack",
    ),
    (
        "illegal_access",
        "illegal memory access on the GPU",
        _C,
        "run once with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer: the stack that was printed is not the "
        "kernel's; suspect custom or compiled kernels",
    ),
    ("gpu_hardware", "the GPU itself failed", _C, "look at Xid lines in the host's kernel log; reset or drain the GPU"),
    (
        "gpu_unavailable",
        "the GPU could not be used at all",
        _C,
        "compare the driver's version with what torch was built for; see that the container has the devices",
    ),
    (
        "no_kernel_image",
        "torch holds no kernels for this GPU",
        _C,
        "install a torch that was built for this GPU's compute capability",
    ),
    (
        "cuda_library",
        "a CUDA library failed",
        _C,
        "an ALLOC_FAILED or NOT_INITIALIZED is most often a full GPU; else run once with CUDA_LAUNCH_BLOCKING=1",
    ),
    (
        "cuda_error",
        "a CUDA error",
        _C,
        "run once with CUDA_LAUNCH_BLOCKING=1: the stack that was printed may not be the kernel's",
    ),
    (
        "dynamo_fx_nested",
        "FX traced a compiled function: threads compile at once",
        _C,
        "compile everything on one thread before the workers start (`compile.plan`); then launch again",
    ),
    (
        "compile_failed",
        "torch.compile failed",
        _C,
        "fix what it names in the user's frame; to go on without: TORCH_COMPILE_DISABLE=1 (slower)",
    ),
    (
        "triton_resources",
        "a compiled kernel needs more than the GPU has",
        _C,
        "smaller block sizes or fewer stages for that kernel; another version of triton",
    ),
    (
        "eager_fallback",
        "runs uncompiled where it was to be compiled",
        _D,
        "slow and memory-hungry: stop it, warm the compile cache up, launch again",
    ),
    (
        "recompile_limit",
        "recompiled too often, now uncompiled",
        _D,
        "fewer shapes (bucket the lengths), mark dynamic ones, or raise torch._dynamo.config.recompile_limit",
    ),
    (
        "recompute_mismatch",
        "activation checkpointing recomputed something else than the forward pass had saved",
        _C,
        "the module must do the same twice; where several threads call compiled code, one of the two fell back to "
        "eager (torch.fx's flag is one for all threads): compile on one thread first, or give each device its own "
        "process",
    ),
    (
        "nccl_timeout",
        "a collective operation timed out",
        _Q,
        "look for the rank that is missing or behind: it failed or hangs elsewhere; only if none did, raise "
        "the time-out",
    ),
    (
        "nccl_hang",
        "the watchdog of NCCL got stuck",
        _Q,
        "a rank hangs in a CUDA or NCCL call: look for an earlier failure; py-spy dump it if it happens again",
    ),
    (
        "nccl_remote_error",
        "another rank or the network went away",
        _Q,
        "look at the other ranks first; if none failed, the network (NCCL_DEBUG=INFO)",
    ),
    (
        "nccl_error",
        "NCCL failed",
        _C,
        "NCCL_DEBUG=INFO tells more; check /dev/shm, network interfaces (NCCL_SOCKET_IFNAME) and that each "
        "rank has its own GPU",
    ),
    ("store_lost", "the rendezvous store went away", _Q, "rank 0 or its launcher ended first: look there"),
    (
        "rendezvous_failed",
        "the ranks did not find each other",
        _C,
        "check MASTER_ADDR and MASTER_PORT, a port in use, firewalls, and that as many nodes start as are wanted",
    ),
    (
        "worker_failed",
        "a worker of the launcher failed",
        _Q,
        "its own traceback or signal, above in its output, is the cause",
    ),
    (
        "segfault",
        "segmentation fault (SIGSEGV)",
        _C,
        "the native library in the innermost frame: mismatched builds, most often; reinstall it, or bisect versions",
    ),
    (
        "bus_error",
        "bus error (SIGBUS)",
        _C,
        "/dev/shm is full or too small, most often: enlarge it, fewer data workers, or sharing strategy "
        "file_system; else a mapped file shrank",
    ),
    (
        "aborted",
        "aborted (SIGABRT)",
        _Q,
        "what was printed before it is the cause: an uncaught C++ exception, glibc, or a watchdog",
    ),
    (
        "illegal_instruction",
        "illegal instruction (SIGILL)",
        _C,
        "a library built for another CPU: reinstall it for this one",
    ),
    ("fpe", "floating point exception (SIGFPE)", _C, "a division by zero in native code: the innermost frame names it"),
    (
        "memory_corruption",
        "the heap was found corrupted",
        _C,
        "a native library writes where it must not: mismatched builds, most often",
    ),
    (
        "data_worker_died",
        "a data loader's worker died",
        _Q,
        "its signal or traceback is the cause; num_workers=0 shows it in the main process",
    ),
    (
        "shm_full",
        "/dev/shm is full",
        _C,
        "enlarge the container's /dev/shm, fewer data workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    (
        "disk_full",
        "no space left on the device (or no inodes)",
        _C,
        "free space: `orch runs`, old checkpoints and caches; look at `df -i` too: without inodes it says the same",
    ),
    ("disk_quota", "disk quota exceeded", _C, "free space of this user or project, or raise the quota"),
    (
        "inodes_full",
        "no inodes left on the file system",
        _C,
        "remove many small files (caches, shards); space alone does not help",
    ),
    (
        "checkpoint_write",
        "a checkpoint could not be written",
        _C,
        "the disk is full or over quota, most often: look at `df` of the output path; the file is not usable",
    ),
    (
        "io_error",
        "a read or write failed in the device",
        _C,
        "look at the kernel log and the file system: full, failing or unmounted storage",
    ),
    (
        "core_dump",
        "a process crashed, and its core was kept",
        _Q,
        "`coredumpctl info PID` names the signal and the stack; what the process printed last says more",
    ),
    (
        "hung_task",
        "a process waits in the kernel and gets no answer",
        _D,
        "storage or a network mount, most often, else a driver: the stack below it in the kernel log names it",
    ),
    (
        "cpu_stall",
        "a processor was stuck in the kernel",
        _D,
        "an overloaded host or a driver: the stack below it in the kernel log names it; if it comes again, reboot",
    ),
    (
        "memory_error",
        "the machine's memory, or a processor, failed",
        _C,
        "drain the host and have the memory module replaced; what ran may hold wrong data",
    ),
    (
        "memory_corrected",
        "errors in the machine's memory were corrected",
        _N,
        "a few are normal; many of one module: have it replaced",
    ),
    (
        "kernel_crash",
        "the kernel crashed",
        _C,
        "reboot the host; the call trace below it names the driver",
    ),
    (
        "mount_hangs",
        "the server of a network mount does not answer",
        _D,
        "look at the server and the network: what reads or writes there waits until it answers",
    ),
    (
        "kv_cache",
        "no GPU memory is left for the engine's KV cache",
        _C,
        "shorter max_model_len, or more of the GPU (gpu_memory_utilization); see what else holds its memory",
    ),
    (
        "stale_mount",
        "a network mount went stale",
        _C,
        "umount -l, mount it anew, launch again: files that were open there stay lost",
    ),
    (
        "dead_mount",
        "the program behind a mount has died",
        _C,
        "umount -l, mount it anew, launch again",
    ),
    (
        "read_only",
        "the file system is read-only",
        _C,
        "remount it after a look at the kernel log: errors make the kernel do that",
    ),
    ("open_files", "too many open files", _C, "raise `ulimit -n`, fewer data workers, or sharing strategy file_system"),
    (
        "bad_command",
        "the command cannot be run as it was given",
        _C,
        "correct `command:` of the payload or what was given with --set; is the file in the release (`orch deploy`)?",
    ),
    (
        "process_limit",
        "no more threads or processes may be started",
        _C,
        "stray processes (`orch reset` shows them), fewer data workers and threads (OMP_NUM_THREADS); else raise "
        "`ulimit -u` or the container's pids limit",
    ),
    (
        "damaged_file",
        "a checkpoint or another file is cut short or damaged",
        _C,
        "take the one before it, or copy the file anew and compare its size; a tiny one may be a git-lfs pointer",
    ),
    (
        "weights_mismatch",
        "weights do not fit the model",
        _C,
        "the checkpoint is of another model or other settings: compare its config with the run's",
    ),
    (
        "hub_access",
        "a model or data set could not be fetched from its hub",
        _C,
        "put it on the target and give its path (HF_HUB_OFFLINE=1); or let the target reach the hub, with a token",
    ),
    (
        "missing_library",
        "a shared library is missing",
        _C,
        "install the package that holds it into the run's environment, or put its folder on the search path",
    ),
    (
        "abi_mismatch",
        "a library was built for another version",
        _C,
        "reinstall it for the torch that is there; see which copy is loaded first",
    ),
    (
        "import_error",
        "a module could not be imported",
        _C,
        "install it into the run's environment; `orch env` shows what changed",
    ),
    (
        "divergence",
        "the loss is not a number any more",
        _C,
        "go back to a checkpoint before that step; lower the learning rate, clip gradients, look at that step's data",
    ),
    (
        "loss_scale_floor",
        "the loss scale cannot be lowered any more",
        _C,
        "gradients overflow at every step: the training diverged; go back to a checkpoint, or bf16",
    ),
    (
        "skipped_steps",
        "steps were skipped because gradients overflowed",
        _N,
        "a few at the start are normal; many later are divergence",
    ),
    (
        "suspect_loss",
        "a loss of exactly 0 beside gradients that are not",
        _N,
        "suspect: look at labels that are all masked, mixed precision, and the steps before",
    ),
    (
        "stack_dump",
        "stacks of all threads were dumped",
        _N,
        "the current thread's innermost frame is what it does; without one, it is not known which matters",
    ),
    (
        "data_thread_died",
        "a thread of the data loader died",
        _Q,
        "the main process or a data worker ended first: look there",
    ),
    ("exception", "an exception that is of no known kind", _C, "the traceback tells"),
)
KINDS: dict[str, Kind] = {name: Kind(name, title, role, remedy) for name, title, role, remedy in _TABLE}
