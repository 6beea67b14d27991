"""Failures that the kernel, and systemd beside it, tell of the machine itself: memory, processors, storage, crashes."""

from __future__ import annotations

from orchestrator.probes.failures.signature import Signature, signature

_DUMPED = r"\bProcess (?P<pid>\d{1,9}) \((?P<process>[^)\n]{1,64})\) of user (?P<uid>\d{1,9})"


def _ended_by(kind: str, number: int, name: str) -> Signature:
    """As systemd-coredump tells of it while it writes, coredumpctl lists it, and systemd says of a service."""
    return signature(
        kind,
        f"abnormally with signal {number}/|sig{name}|signal: {number} (|status={number}/",
        rf"{_DUMPED} terminated abnormally with signal {number}/{name}\b"
        rf"|\b(?P<pid2>\d{{1,9}}) +\d{{1,9}} +\d{{1,9}} +SIG{name} +(?:present|missing|none|truncated|journal|error)"
        r" +(?P<program>/[^\s]{1,300})"
        rf"|^\s*Signal: {number} \({name}\)"
        rf"|\b(?P<unit>[\w@:.\\-]{{1,120}}\.(?:service|scope)): Main process exited, code=(?:killed|dumped), "
        rf"status={number}/{name}\b",
        rf"Message: {_DUMPED}",
        following=16,
    )


SIGNATURES: tuple[Signature, ...] = (
    _ended_by("segfault", 11, "SEGV"),
    _ended_by("aborted", 6, "ABRT"),
    _ended_by("bus_error", 7, "BUS"),
    _ended_by("illegal_instruction", 4, "ILL"),
    _ended_by("fpe", 8, "FPE"),
    _ended_by("killed", 9, "KILL"),
    signature("core_dump", "dumped core", rf"{_DUMPED} dumped core\b"),
    signature(
        "hung_task",
        "blocked for more than|state:d ",
        r"INFO: task (?P<process>[^\n]{1,64}?):(?P<pid>\d{1,9}) blocked for more than (?P<seconds>\d{1,9}) sec"
        r"|\btask:(?P<process2>\S{1,64}) +state:D stack: *\d{1,9} +pid: *(?P<pid2>\d{1,9})",
    ),
    signature(
        "cpu_stall",
        "lockup|stall",
        r"BUG: (?:soft|hard) lockup - CPU#(?P<cpu>\d{1,6}) stuck for (?P<seconds>\d{1,9})s! "
        r"\[(?P<process>[^\]\n]{1,64}):(?P<pid>\d{1,9})\]"
        r"|BUG: workqueue lockup - .{1,120} stuck for (?P<seconds2>\d{1,9})s"
        r"|Watchdog detected hard LOCKUP on cpu (?P<cpu2>\d{1,6})"
        r"|\brcu\w{0,20} (?:self-)?detected (?:expedited )?stalls? on CPU",
    ),
    signature(
        "memory_corrected",
        " ce ",
        r"EDAC MC\d{1,3}: (?P<count>\d{1,9}) CE .{0,60}?\bon (?P<dimm>[^(\n]{1,80}?) *\(",
    ),
    signature(
        "memory_corrected",
        "event severity: corrected|cecc",
        r"\[Hardware Error\]: event severity: corrected"
        r"|_STATUS\[(?:[^\]\n]{0,60}\|)?CE\|[^\]\n]{0,100}\|(?P<part>CECC)\b",
        r"section_type: (?P<part>memory) error",
        following=8,
        needs="part",
    ),
    signature(
        "memory_error",
        "event severity: |uecc",
        r"\[Hardware Error\]: event severity: (?:recoverable|fatal)"
        r"|_STATUS\[(?:[^\]\n]{0,60}\|)?UE\|[^\]\n]{0,100}\|(?P<part>UECC)\b",
        r"section_type: (?P<part>memory) error",
        following=8,
        needs="part",
    ),
    signature(
        "memory_error",
        " ue |uncorrected|hardware memory corruption|machine check",
        r"EDAC MC\d{1,3}: (?P<count>\d{1,9}) UE .{0,60}?\bon (?P<dimm>[^(\n]{1,80}?) *\("
        r"|Uncorrected hardware memory error in user-access at (?P<address>[\da-f]{1,16})"
        r"|(?:Killing|Sending SIGBUS to) (?P<process>[^\n]{1,64}?):(?P<pid>\d{1,9}) due to hardware memory corruption"
        r"|Machine Check Exception: [\da-f]{1,4} Bank (?P<bank>\d{1,3})|Fatal machine check",
    ),
    signature(
        "kernel_crash",
        "kernel panic|unable to handle|oops:",
        r"Kernel panic - not syncing: (?P<message>(?!Fatal machine check)[^\n]{1,200})"
        r"|BUG: (?P<message2>unable to handle [^\n]{1,200})|\bOops: (?:general protection fault|[\da-f]{4} \[#\d)",
    ),
    signature(
        "io_error",
        "xfs (|btrfs|nvme|uncorrectable i/o failure",
        r"XFS \((?P<device>[\w-]{1,32})\): (?:[^\n]{0,40}I/O [Ee]rror|[^\n]{0,20}Corruption|Filesystem has been shut)"
        r"|BTRFS (?:error|critical) \(device (?P<device2>[\w-]{1,32})"
        r"|\bnvme (?P<controller>nvme\d{1,4}): (?:I/O (?:tag )?\d{1,6}[^\n]{0,40} timeout|controller is down)"
        r"|Pool '(?P<pool>[^'\n]{1,80})' has encountered an uncorrectable I/O failure",
    ),
    signature(
        "mount_hangs",
        "not responding",
        r"\bnfs: server (?P<server>\S{1,120}) not responding",
    ),
)
