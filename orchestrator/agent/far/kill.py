"""Op kill_processes, on the host: end exactly the named processes of one container: TERM, wait, KILL, wait.

Rule: a signal goes through a handle on the process, and only after its start time, its cgroup and its numbers were
read again with the handle open; what is not, now, what was named is never signalled.
"""

from __future__ import annotations

import signal
import time
from typing import Any, Callable, List

from . import membership, process
from .errors import OpError
from .records import Record

POLL_S = 0.02


class Chosen:
    """One process that was named, and what became of it."""

    def __init__(self, told: Record, boot: Record, container: int) -> None:
        self.identity = dict(boot, pid=int(told["pid"]), start_ticks=int(told["start_ticks"]))
        self.ns_pids = [int(number) for number in told["ns_pids"]]
        self.container = container
        self.outcome = "gone"

    def same(self) -> bool:
        """Does it live, is it still that process, and the container's?"""
        return process.is_alive(self.identity) and self._belongs()

    def send(self, number: int) -> bool:
        return process.send_signal(self.identity, number, check=self._belongs)

    def answer(self) -> Record:
        stat = process.live_stat(self.identity)
        return {"pid": self.identity["pid"], "outcome": self.outcome, "state": stat.state if stat else None}

    def _belongs(self) -> bool:
        return membership.belongs(membership.membership(self.identity["pid"]), self.container, self.ns_pids)


def kill_processes(params: Record, body: bytes, channel: Any) -> Record:
    """params: container, boot_id, init_start_ticks, processes [{pid, start_ticks, ns_pids}], wait_s, kill_wait_s.

    Events: {"phase": "asked" | "killing", pids}. {"processes": [{pid, outcome, state}]}; outcome: ended (after TERM),
    killed, gone (it was not there any more, or its number is another's: nothing was sent), left (it lives; state D:
    in the kernel, out of a signal's reach). Raises OpError("bad_request").
    """
    boot = {"boot_id": params["boot_id"], "init_start_ticks": params["init_start_ticks"]}
    if not isinstance(params.get("container"), int):
        raise OpError("bad_request", "the host's own processes are not ended")
    chosen = [Chosen(told, boot, params["container"]) for told in params["processes"]]
    asked = [one for one in chosen if one.send(signal.SIGTERM)]
    if asked:
        channel.emit({"phase": "asked", "pids": [one.identity["pid"] for one in asked]})
    for one in asked:
        one.outcome = "ended"
    _wait(asked, float(params["wait_s"]), channel.check)
    stubborn = [one for one in asked if one.same()]
    if stubborn:
        channel.emit({"phase": "killing", "pids": [one.identity["pid"] for one in stubborn]})
    for one in stubborn:
        if one.send(signal.SIGKILL):
            one.outcome = "killed"
    _wait(stubborn, float(params["kill_wait_s"]), channel.check)
    for one in asked:
        if process.is_alive(one.identity):
            one.outcome = "left"
    return {"processes": [one.answer() for one in chosen]}


def _wait(chosen: List[Chosen], timeout_s: float, check: Callable[[], None]) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and any(one.same() for one in chosen):
        check()
        time.sleep(POLL_S)
