"""Op stop_run: ask, wait, and only when told so kill; then prove that nothing is left.

Rule: a signal goes to a process only if it is still the same (boot, pid, start time) and is the run's own:
its recorded first process, or one that carries the run's folder in its environment. Never by name.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any, Callable, List

from . import journal, live, process, records
from .records import Record, contract

POLL_S = 0.05
KILL_WAIT_S = 10.0
RECORD_WAIT_S = 5.0
"""How long a living wrapper may take to write exit.json once everything else is dead."""


class RunProcesses:
    """Which processes of one run live, read afresh at each question."""

    def __init__(self, base: str, run_id: str) -> None:
        self.base = base
        self.run_id = run_id
        self.folder = records.run_folder(base, run_id)
        live_facts = live.facts(base)
        wrapper = records.read_record(self.folder, contract.WRAPPER) or live_facts.get("content") or {}
        self.wrapper = wrapper.get("wrapper") if wrapper.get("run_id") == run_id else None
        self.training = records.training_identity(self.folder, live_facts)

    def exit_record(self) -> Record | None:
        return records.read_record(self.folder, contract.EXIT)

    def training_alive(self) -> bool:
        return process.is_alive(self.training)

    def others(self) -> List[process.Stat]:
        """Everything that was started as part of the run, but neither the training's first process nor the wrapper."""
        known = {i["pid"] for i in (self.training, self.wrapper) if i and process.is_alive(i)}
        found = records.processes_of_run(self.folder)
        return [stat for stat in found if stat.pid not in known]

    def living(self) -> List[process.Stat]:
        first = process.live_stat(self.training) if self.training else None
        return ([first] if first else []) + self.others()

    def ended(self) -> bool:
        """Nothing of it lives, and if there is a wrapper, it has told the end."""
        if self.training_alive() or self.others():
            return False
        return self.exit_record() is not None or not process.is_alive(self.wrapper)


def stop_run(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, run_id (None: the live run), wait_s, kill, who (`ann@laptop`, for the journal).

    Events: {"phase": "asked", pid}, {"phase": "waiting", status} when status.json changes, {"phase": "killing", still}.
    {"stopped": true, run_id, was: "running"|"ended"|"none", exit, killed: [...]} or
    {"stopped": false, run_id, still: [processes], exit}.
    """
    base = records.base_folder(params)
    run_id = params.get("run_id") or _live_run(base)
    if run_id is None:
        return {"stopped": True, "was": "none", "run_id": None, "exit": None, "killed": []}
    run = RunProcesses(base, str(run_id))
    if run.ended():
        return {"stopped": True, "was": "ended", "run_id": run_id, "exit": run.exit_record(), "killed": []}
    kill = bool(params.get("kill"))
    # A full disk must not keep it from being stopped.
    entry = journal.begin(base, "stop", params.get("who"), {"run_id": run_id, "kill": kill}, required=False)
    with entry:
        answer = _stop(run, channel, float(params["wait_s"]), kill)
        entry.note(stopped=answer["stopped"])
    return answer


def _stop(run: RunProcesses, channel: Any, wait_s: float, kill: bool) -> Record:
    _ask(run, channel)
    if not _wait(run, channel, run.ended, wait_s) and not kill:
        still = [process.describe(stat) for stat in run.living()]
        return {"stopped": False, "run_id": run.run_id, "still": still, "exit": run.exit_record()}
    killed = [] if run.ended() else _kill(run, channel)
    still = [process.describe(stat) for stat in run.living()]
    ended = {"was": "running", "run_id": run.run_id, "exit": run.exit_record(), "killed": killed}
    return dict(ended, stopped=not still, still=still)


def _ask(run: RunProcesses, channel: Any) -> None:
    """A checkpoint, please: SIGTERM to the training's group; to what it left behind when it is gone itself."""
    with contextlib.suppress(OSError):  # a full disk must not keep it from being stopped
        records.write_record(run.folder, contract.STOP, {"asked_at": time.time()})
    if run.training is not None and process.send_signal_to_group(run.training, signal.SIGTERM):
        channel.emit({"phase": "asked", "pid": run.training["pid"]})
    else:
        for stat in run.others():
            process.send_signal_to(stat, signal.SIGTERM)
            channel.emit({"phase": "asked", "pid": stat.pid})
    wrapper = process.live_stat(run.wrapper) if run.wrapper else None
    for stat in [*run.living(), *([wrapper] if wrapper else [])]:
        if stat.stopped:  # it cannot answer, nor end
            process.send_signal_to(stat, signal.SIGCONT)


def _kill(run: RunProcesses, channel: Any) -> List[Record]:
    """Again and again until nothing is left: a process may have been born during the last look."""
    killed = {stat.pid: process.describe(stat) for stat in run.living()}
    channel.emit({"phase": "killing", "still": list(killed.values())})
    until = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < until and not channel.cancelled.is_set():
        if run.training is not None:
            process.send_signal_to_group(run.training, signal.SIGKILL)
        for stat in run.living():
            killed.setdefault(stat.pid, process.describe(stat))
            process.send_signal_to(stat, signal.SIGKILL)
        if not run.living():
            break
        time.sleep(POLL_S)
    if not _wait(run, channel, run.ended, RECORD_WAIT_S) and not run.living() and run.wrapper is not None:
        process.send_signal(run.wrapper, signal.SIGKILL)  # it hangs, and would keep the target busy for ever
    return list(killed.values())


def _wait(run: RunProcesses, channel: Any, condition: Callable[[], bool], timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    told = None
    asked_others = False
    while not condition():
        channel.check()
        status = records.read_record(run.folder, contract.STATUS)
        if status != told:
            told = status
            channel.emit({"phase": "waiting", "status": status})
        if not asked_others and not run.training_alive() and run.exit_record() is not None:
            asked_others = True
            for stat in run.others():  # its own children, in groups of their own
                process.send_signal_to(stat, signal.SIGTERM)
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def _live_run(base: str) -> str | None:
    found = live.facts(base)
    run_id = (found["content"] or {}).get("run_id") if found["held"] else None
    return str(run_id) if run_id else None
