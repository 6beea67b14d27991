"""Who is answering: interpreter, machine, boot. Linux; what cannot be read is None."""

from __future__ import annotations

import os
import sys
import time

from .sources import agent_hash

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict


def hello(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    return facts()


def facts() -> Dict[str, Any]:
    return {
        "python_version": "%d.%d.%d" % sys.version_info[:3],
        "executable": sys.executable,
        "boot_id": boot_id(),
        "init_start_ticks": start_ticks(1),
        "hostname": os.uname().nodename,
        "uid": os.getuid(),
        "now_s": time.time(),
        "agent_hash": agent_hash(),
    }


def boot_id() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat: with the pid and the boot id it names a process for good."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            text = stream.read()
        # The command name may hold spaces and brackets: count from the last one.
        return int(text[text.rindex(b")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return None
