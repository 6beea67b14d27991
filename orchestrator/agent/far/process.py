"""Processes as /proc tells of them: who they are, whether they live, which belong to a run; signals by identity.

Rule: a process is (boot id, start ticks of pid 1, pid, start ticks), never a pid alone, and nothing is signalled
whose identity was not read again just before. The start of pid 1 is part of it because a restarted container
may keep the boot id of its host (LXC makes a new one each time, others do not).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from .identity import boot_id, start_ticks

Identity = Dict[str, Any]
"""boot_id, init_start_ticks, pid, start_ticks: plain values, because it is stored as JSON."""
STOPPED = "T"
"""The state after SIGSTOP or Ctrl-Z, until a SIGCONT. Under a debugger (t) it goes on by itself."""


class Stat(NamedTuple):
    """/proc/<pid>/stat, the fields used here. `comm` may hold anything, also `)` and spaces."""

    pid: int
    comm: bytes
    state: str
    ppid: int
    pgrp: int
    session: int
    num_threads: int
    start_ticks: int

    @property
    def dead(self) -> bool:
        """A zombie is dead, unless only its first thread has ended."""
        return self.state in "XZx" and self.num_threads <= 1

    @property
    def stopped(self) -> bool:
        return self.state == STOPPED


def parse_stat(data: bytes) -> Stat:
    """Raises ValueError when it is not a stat line."""
    opening, closing = data.find(b"("), data.rfind(b")")
    rest = data[closing + 1 :].split()
    if opening < 0 or closing < opening or len(rest) < 20:
        raise ValueError("not a stat line: %r" % data[:80])
    return Stat(
        pid=int(data[:opening]),
        comm=data[opening + 1 : closing],
        state=rest[0].decode("ascii"),
        ppid=int(rest[1]),
        pgrp=int(rest[2]),
        session=int(rest[3]),
        num_threads=int(rest[17]),
        start_ticks=int(rest[19]),
    )


def parse_words(data: bytes) -> List[str]:
    """/proc/<pid>/cmdline or environ: words ended by NUL. Bytes that are not UTF-8 become surrogates."""
    words = data.split(b"\0")
    if not words[-1]:
        words.pop()
    return [os.fsdecode(word) for word in words]


def parse_cgroup(text: str) -> Dict[str, str]:
    """/proc/<pid>/cgroup: controller (or "" for the unified hierarchy) -> path."""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def parse_oom_kills(text: str) -> int | None:
    """`oom_kill N` of memory.events (v2) or memory.oom_control (v1)."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "oom_kill" and words[1].isdigit():
            return int(words[1])
    return None


# Reading.


def read_stat(pid: int) -> Stat | None:
    try:
        return parse_stat(_read("/proc/%d/stat" % pid))
    except (OSError, ValueError):
        return None


def command_line(pid: int) -> List[str]:
    try:
        return parse_words(_read("/proc/%d/cmdline" % pid))
    except OSError:
        return []


def oom_kills(pid: int | str = "self") -> int | None:
    """How many processes of the cgroup of `pid` were killed for want of memory, since the cgroup was made."""
    try:
        groups = parse_cgroup(os.fsdecode(_read("/proc/%s/cgroup" % pid)))
    except OSError:
        return None
    places = [("/sys/fs/cgroup", "", "memory.events"), ("/sys/fs/cgroup/memory", "memory", "memory.oom_control")]
    for mount, controller, file in places:
        if controller in groups:
            for path in (groups[controller], ""):  # inside a container the path may be seen from the outside
                with contextlib.suppress(OSError):
                    count = parse_oom_kills(os.fsdecode(_read(mount + path.rstrip("/") + "/" + file)))
                    if count is not None:
                        return count
    return None


def started_at(ticks: int) -> float:
    """Start ticks -> Unix time in seconds."""
    return booted_at() + ticks / os.sysconf("SC_CLK_TCK")


def booted_at() -> float:
    """Unix time in seconds at which the machine's kernel started, seen from inside a container too."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


# Identity.


def identity_of(pid: int) -> Identity | None:
    """None when there is no such process, or it is dead."""
    stat = read_stat(pid)
    if stat is None or stat.dead:
        return None
    return identity_from(stat)


def is_alive(identity: Identity | None) -> bool:
    """Is this very process still there, and not a zombie? Unknown identity: False."""
    return identity is not None and live_stat(identity) is not None


def live_stat(identity: Identity) -> Stat | None:
    if not same_boot(identity):
        return None
    stat = read_stat(int(identity["pid"]))
    if stat is None or stat.dead or stat.start_ticks != identity["start_ticks"]:
        return None
    return stat


def same_boot(identity: Identity) -> bool:
    """Neither the machine nor the container was restarted since."""
    return identity.get("boot_id") == boot_id() and identity.get("init_start_ticks") == start_ticks(1)


def processes_with(variable: str, value: str) -> List[Stat]:
    """The living processes that were started with this environment variable, without our own."""
    return [stat for stat, found in values_of(variable) if found == value]


def values_of(variable: str) -> List[Tuple[Stat, str]]:
    """Every living process that was started with this environment variable, without our own, and its value."""
    found = []
    start = os.fsencode(variable + "=")
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            # Before the environment: a number that is given away between the two then fails on the start time.
            stat = read_stat(int(name))
            if stat is None or stat.dead:
                continue
            for word in _read("/proc/%s/environ" % name).split(b"\0"):
                if word.startswith(start):
                    found.append((stat, os.fsdecode(word[len(start) :])))
                    break
    return found


def describe(stat: Stat) -> Dict[str, Any]:
    """For a person: what it is. A state of D cannot be killed until the kernel lets go of it."""
    return {
        "pid": stat.pid,
        "start_ticks": stat.start_ticks,
        "state": stat.state,
        "argv": command_line(stat.pid)[:64] or [os.fsdecode(stat.comm)],
        "started_at": started_at(stat.start_ticks),
    }


# Signals. Each returns whether the signal was sent.


def send_signal(identity: Identity, number: int, check: Callable[[], bool] = lambda: True) -> bool:
    """To this very process, if `check` also holds then. Raises PermissionError."""
    pid = int(identity["pid"])
    if not hasattr(os, "pidfd_open"):  # before Python 3.9
        return is_alive(identity) and check() and _kill(os.kill, pid, number)
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # an old kernel, or a sandbox without it
        return is_alive(identity) and check() and _kill(os.kill, pid, number)
    try:
        # Checked after opening: from here on the handle cannot come to mean another process.
        if not is_alive(identity) or not check():
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def send_signal_to_group(leader: Identity, number: int) -> bool:
    """To the process group that `leader` leads; only while the leader itself lives: its pid is then the group's."""
    stat = live_stat(leader)
    if stat is None:
        return False
    if stat.pgrp != stat.pid:
        return send_signal(leader, number)
    return _kill(os.killpg, stat.pid, number)


def send_signal_to(stat: Stat, number: int) -> bool:
    return send_signal(identity_from(stat), number)


def identity_from(stat: Stat) -> Identity:
    return {
        "boot_id": boot_id(),
        "init_start_ticks": start_ticks(1),
        "pid": stat.pid,
        "start_ticks": stat.start_ticks,
    }


def _kill(call: Any, pid: int, number: int) -> bool:
    try:
        call(pid, number)
        return True
    except ProcessLookupError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
