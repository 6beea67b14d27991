"""To which container a process of the host belongs: its cgroup's path and its number inside.

Rule: a process is a container's only if every controller that names a container names this one, at the top of the
hierarchy, and it has a second process number. Whatever is not clear belongs to nobody.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple

from . import process

_TOP = re.compile(r"/lxc(?:/|\.payload\.)(\d{1,9})(?:/|$)")
"""`/lxc/200/ns/...` as Proxmox has it, `/lxc.payload.200/...` as LXC alone; never a container within a container."""


class Membership(NamedTuple):
    container: int | None
    """None: of no container, or not known."""
    ns_pids: List[int]
    """The process's numbers from the outermost namespace that this /proc shows to its own."""


def container_of(paths: Iterable[str]) -> int | None:
    """Of the paths in /proc/<pid>/cgroup; None also when they disagree."""
    found = {int(match.group(1)) for match in map(_TOP.match, paths) if match}
    return found.pop() if len(found) == 1 else None


def parse_ns_pids(status: str) -> List[int]:
    """`NSpid:` of /proc/<pid>/status; empty when it is not there."""
    for line in status.splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name == "NSpid" and all(word.isdigit() for word in numbers.split()):
            return [int(word) for word in numbers.split()]
    return []


def membership(pid: int) -> Membership:
    return Membership(container_of(_cgroups(pid).values()), parse_ns_pids(_text(pid, "status")))


def belongs(seen: Membership, container: int, ns_pids: List[int]) -> bool:
    """Is it, now, what it was when it was chosen: a process of this container, under the same numbers?"""
    return seen.container == container and len(seen.ns_pids) >= 2 and seen.ns_pids == ns_pids


def _cgroups(pid: int) -> Dict[str, str]:
    return process.parse_cgroup(_text(pid, "cgroup"))


def _text(pid: int, name: str) -> str:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            return os.fsdecode(stream.read())
    except OSError:
        return ""
