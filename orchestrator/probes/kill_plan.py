"""Which processes a reset ends, and which it leaves alone, each with the reason.

Rule: pure. On the host only a process of this very container, by its cgroup and with a number inside, is chosen;
inside, only what was started as part of a run of this base. Whatever is not clear is left alone and shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.probes.gpu_processes import ComputeApp, HostProcess, command_text, is_monitor
from orchestrator.probes.values import as_int, as_mapping, as_str, as_strs


@dataclass(frozen=True)
class RunProcess:
    """Of a run of this base, as the target itself sees it."""

    pid: int
    start_ticks: int
    state: str
    command: str
    why: str


@dataclass(frozen=True)
class RunToEnd:
    run_id: str
    live: bool
    processes: tuple[RunProcess, ...]
    step: int | None = None
    """Where a live run is."""


@dataclass(frozen=True)
class Choice:
    """One row of the plan."""

    pid: int | None
    """On the target itself; None: it is not in there."""
    host_pid: int | None
    """None: not seen from the host."""
    devices: tuple[str, ...]
    reason: str
    command: str
    state: str


@dataclass(frozen=True)
class KillPlan:
    runs: tuple[RunToEnd, ...]
    """Ended on the target: the live one first, asked for a checkpoint."""
    host_processes: tuple[HostProcess, ...]
    """Ended on the host: of this container, on a GPU, and of no run."""
    killed: tuple[Choice, ...]
    spared: tuple[Choice, ...]

    @property
    def live_run(self) -> RunToEnd | None:
        return next((run for run in self.runs if run.live), None)


def parse_leftovers(answer: Mapping[str, object], step: int | None = None) -> tuple[RunToEnd, ...]:
    """`answer` of run_leftovers; step: of the live run. The live run comes first, and is there without processes too:
    whatever holds live.lock is then seen by its lock alone."""
    live_run = as_str(answer.get("live_run"))
    found = {}
    rows = answer.get("runs")
    for raw in map(as_mapping, rows if isinstance(rows, list) else []):
        run_id = as_str(raw.get("run_id"))
        if run_id is not None:
            live = run_id == live_run
            found[run_id] = RunToEnd(run_id, live, _processes(raw.get("processes")), step if live else None)
    if live_run is not None and live_run not in found:
        found[live_run] = RunToEnd(live_run, True, (), step)
    return tuple(sorted(found.values(), key=lambda run: (not run.live, run.run_id)))


def plan_kill(
    container: int | None,
    runs: Sequence[RunToEnd],
    host: Sequence[HostProcess],
    apps: Sequence[ComputeApp],
) -> KillPlan:
    """container None: the host itself is the target, and only processes of runs are ended."""
    of_run = {(process.pid, process.start_ticks): run for run in runs for process in run.processes}
    seen: dict[tuple[int, int], HostProcess] = {}
    chosen: list[HostProcess] = []
    spared: list[Choice] = []
    for process in sorted(host, key=lambda process: process.pid):
        here = _here(process, container)
        if here is not None and (here, process.start_ticks) in of_run:
            seen[here, process.start_ticks] = process
            continue
        reason = _spared(process, container, apps)
        if reason is None:
            chosen.append(process)
        else:
            spared.append(_choice(here, process, reason))
    listed = {process.pid for process in host}
    for pid in sorted({app.pid for app in apps} - listed):
        spared.append(Choice(None, pid, (), "nvidia-smi lists it, but there is no such process", "", "?"))
    killed = [_of_run(run, process, seen) for run in runs for process in run.processes]
    killed += [_choice(process.container_pid, process, "of this container, on a GPU") for process in chosen]
    return KillPlan(tuple(runs), tuple(chosen), tuple(killed), tuple(spared))


def _here(process: HostProcess, container: int | None) -> int | None:
    """Its number on the target, if it is of the target."""
    if container is None:
        return process.pid
    return process.container_pid if process.container == container else None


def _spared(process: HostProcess, container: int | None, apps: Sequence[ComputeApp]) -> str | None:
    """Why it is left alone; None: it is not."""
    if container is None:
        return "not started by a run of this target"
    if process.container is None:
        return "the host's own, or not known whose"
    if process.container != container:
        return f"container {process.container}'s"
    if process.container_pid is None:
        return "not inside the container, although in its cgroup"
    if process.container_pid == 1:
        return "the container's first process: ending it would stop the container"
    if is_monitor(process, apps):
        return "only looks at the GPUs"
    return None


def _choice(pid: int | None, process: HostProcess, reason: str) -> Choice:
    return Choice(pid, process.pid, process.devices, reason, process.command, process.state)


def _of_run(run: RunToEnd, process: RunProcess, seen: Mapping[tuple[int, int], HostProcess]) -> Choice:
    there = seen.get((process.pid, process.start_ticks))
    reason = f"of the live run {run.run_id}" if run.live else f"left over from run {run.run_id}"
    return Choice(
        process.pid,
        there.pid if there else None,
        there.devices if there else (),
        reason,
        process.command,
        process.state,
    )


def _processes(value: object) -> tuple[RunProcess, ...]:
    found = []
    for raw in map(as_mapping, value if isinstance(value, list) else []):
        pid, ticks = as_int(raw.get("pid")), as_int(raw.get("start_ticks"))
        if pid is not None and ticks is not None:
            command = command_text(as_strs(raw.get("argv")))
            found.append(
                RunProcess(pid, ticks, as_str(raw.get("state")) or "?", command, as_str(raw.get("why")) or "its record")
            )
    return tuple(sorted(found, key=lambda process: process.pid))
