"""Op gpu_holders: which processes, of any container, have a GPU's device file open. Looks only.

Rule: nothing is said that was not read; a process that is gone while it is looked at is left out.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List

from . import process
from .identity import boot_id, start_ticks
from .membership import membership
from .records import Record

_DEVICE = re.compile(r"/dev/(nvidia(?:\d{1,4}|-uvm))")
"""/dev/nvidiactl alone is a monitor's."""


def gpu_holders(params: Record, body: bytes, channel: Any) -> Record:
    """params: pids (to be described whether they hold a device or not: what nvidia-smi named).

    {boot_id, init_start_ticks, devices: [names in /dev], processes: [{pid, start_ticks, state, argv, started_at,
    devices, container, ns_pids}], complete: every process's descriptors could be read}
    """
    named = {int(pid) for pid in params.get("pids") or []}
    found: List[Record] = []
    complete = True
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        channel.check()
        stat = process.read_stat(int(name))
        if stat is None:
            continue
        try:
            devices = _devices(stat.pid)
        except PermissionError:
            complete = False
            devices = []
        except OSError:
            continue
        if devices or stat.pid in named:
            found.append(_described(stat, devices))
    return {
        "boot_id": boot_id(),
        "init_start_ticks": start_ticks(1),
        "devices": sorted(entry for entry in os.listdir("/dev") if _DEVICE.fullmatch("/dev/" + entry)),
        "processes": found,
        "complete": complete,
    }


def _described(stat: process.Stat, devices: List[str]) -> Dict[str, Any]:
    seen = membership(stat.pid)
    return dict(process.describe(stat), devices=devices, container=seen.container, ns_pids=seen.ns_pids)


def _devices(pid: int) -> List[str]:
    """Raises OSError."""
    found = set()
    folder = "/proc/%d/fd" % pid
    for number in os.listdir(folder):
        try:
            target = os.readlink(folder + "/" + number)
        except FileNotFoundError:
            continue  # closed since
        match = _DEVICE.fullmatch(target)
        if match:
            found.add(match.group(1))
    return sorted(found)
