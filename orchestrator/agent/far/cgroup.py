"""What the container may use and uses, as its own cgroup files say; both versions of cgroups.

Rule: read from inside only. There the limit may be out of sight (it is set one group further up); then lxcfs, which
shows it as the machine's memory, is asked, and otherwise it is unknown.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List

from .identity import start_ticks
from .process import parse_cgroup, started_at

UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as a number near 2 ** 63."""


def container_facts(root: str = "/") -> Dict[str, Any]:
    """uptime_s, memory_used_bytes, memory_limit_bytes, cpu_limit_cores; each None where it cannot be known."""
    memory = _folders(root, "memory")
    first = start_ticks(1)
    return {
        "uptime_s": None if first is None else max(0.0, time.time() - started_at(first)),
        "memory_used_bytes": _memory_used(memory),
        "memory_limit_bytes": _memory_limit(memory, root),
        "cpu_limit_cores": _cpu_limit(_folders(root, "cpu")),
    }


def limit_facts(root: str = "/") -> Dict[str, Any]:
    """memory_bytes, cpu_cores; "none" where a group's file says that there is none, None where no file says so."""
    memory, cpu = _folders(root, "memory"), _folders(root, "cpu")
    memory_bytes, cpu_cores = _memory_limit(memory, root), _cpu_limit(cpu)
    names = [(folder, name) for folder in memory for name in ("memory.max", "memory.limit_in_bytes")]
    asked = any(_text("%s/%s" % pair) is not None for pair in names)
    asked_cpu = any(_text(folder + name) is not None for folder in cpu for name in ("/cpu.max", "/cpu.cfs_quota_us"))
    return {
        "memory_bytes": "none" if memory_bytes is None and asked else memory_bytes,
        "cpu_cores": "none" if cpu_cores is None and asked_cpu else cpu_cores,
    }


def _folders(root: str, controller: str) -> List[str]:
    """Of the whole container first, then the one we are in and those in between; without a slash at their ends."""
    groups = parse_cgroup(_text(root + "proc/self/cgroup") or "")
    if controller in groups:
        top, path = "%ssys/fs/cgroup/%s" % (root, controller), groups[controller]
    else:
        top, path = "%ssys/fs/cgroup" % root, groups.get("", "")
    found = [top]
    for part in path.split("/"):
        if part not in ("", ".."):
            found.append(found[-1] + "/" + part)
    return found


def _memory_used(folders: List[str]) -> int | None:
    for folder in folders:  # the root of the whole machine has no such file: the next one is ours
        for name in ("memory.current", "memory.usage_in_bytes"):
            used = _number(_text(folder + "/" + name))
            if used is not None:
                return max(0, used - _inactive_files(_text(folder + "/memory.stat") or ""))
    return None


def _inactive_files(text: str) -> int:
    found: Dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found.get("total_inactive_file", found.get("inactive_file", 0))


def _memory_limit(folders: List[str], root: str) -> int | None:
    limits = [
        _number(_text(folder + "/" + name)) for folder in folders for name in ("memory.max", "memory.limit_in_bytes")
    ]
    known = [limit for limit in limits if limit is not None and limit < UNLIMITED]
    if _is_lxcfs(root, "/proc/meminfo"):
        for line in (_text(root + "proc/meminfo") or "").splitlines():
            words = line.split()
            if words[:1] == ["MemTotal:"] and words[1].isdigit():
                known.append(int(words[1]) * 1024)
    return min(known) if known else None


def _is_lxcfs(root: str, path: str) -> bool:
    lines = (_text(root + "proc/self/mountinfo") or "").splitlines()
    return any(line.split(" ")[4:5] == [path] and "lxcfs" in line for line in lines)


def _cpu_limit(folders: List[str]) -> float | None:
    limits = []
    for folder in folders:
        words = (_text(folder + "/cpu.max") or "").split()
        if len(words) != 2:
            words = [_text(folder + "/cpu.cfs_" + name) or "" for name in ("quota_us", "period_us")]
        quota, period = _number(words[0]), _number(words[1])
        if quota and period:
            limits.append(quota / period)
    return min(limits) if limits else None


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdigit() else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
