"""The first process of a run with one process a device: starts the ranks, watches them, and says whose end it was.

Rule: it holds no device and trains nothing, so nothing that happens on one can block it. No rank outlives it: each asks
the kernel to be killed with its parent, and its standard input closes. A rank that is killed ends all others at once.

Shutdown order: the first SIGTERM is handed to the leader, which lets the step end everywhere, saves, and leaves; its
exit code is the run's. A second SIGTERM ends this process, and with it every rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import contract
from ranks import Rank, Verdict, describe, ending, environment_of, judge
from start import Run
from stopping import StopRequest

LOOK_EVERY_S = 0.1
SETTLE_S = 3.0
"""How long a failure waits for a better reason: that of the rank that failed first, or of the leader."""
LEAVE_S = 20.0
"""How long other ranks may take to leave once the leader has, in order."""
RANK = Path(__file__).resolve().parent / "rank.py"
JOB = "job.json"
STACKS_APART_S = 0.5
"""They all write to one log, a few letters at a time: one rank has said where it is before the next is asked."""
OF_THE_SUPERVISOR = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def supervise(run: Run, places: Mapping[str, str], ranks: List[Rank]) -> int:
    """The run's exit code."""
    job = run.folder / f".job.{os.getpid()}"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    record = {
        "folder": str(run.folder),
        "settings": run.config.flat(),
        "places": dict(places),
        "spec": asdict(run.spec),
        "ranks": [asdict(rank) for rank in ranks],
    }
    contract.write_json(job / JOB, record)
    processes: Dict[Rank, subprocess.Popen[bytes]] = {}
    try:
        show_all_stacks_on_usr1(processes)
        # Held back for the ranks too, until each knows what they mean (rank.py): Ctrl-C reaches all of a terminal's.
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_SUPERVISOR)
        for rank in ranks:
            processes[rank] = start(rank, job)
            run.progress.say(f"started {describe(rank, processes[rank].pid)}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_SUPERVISOR)
        verdict = watch(processes, run.stop)
        end(processes, patience_s(verdict))
        tell(verdict, processes, job, run)
        return verdict.code
    finally:
        end(processes, 0.0)
        shutil.rmtree(job, ignore_errors=True)


def start(rank: Rank, job: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(RANK), str(job), str(rank.number), str(os.getpid())]
    return subprocess.Popen(argv, env=environment_of(rank, os.environ), stdin=subprocess.PIPE)


def watch(processes: Mapping[Rank, subprocess.Popen[bytes]], stop: StopRequest) -> Verdict:
    told, seen_at = False, None
    while True:
        if stop.asked and not told:
            told = True
            ask_to_stop(processes)
        verdict = judge({rank: process.poll() for rank, process in processes.items()})
        if verdict is not None:
            seen_at = seen_at or time.monotonic()
            if verdict.at_once or time.monotonic() - seen_at >= SETTLE_S:
                return verdict
        time.sleep(LOOK_EVERY_S)


def patience_s(verdict: Verdict) -> float:
    """For those that are left: where nothing was begun they wait for what never comes."""
    if verdict.culprit is not None or verdict.code in (contract.EXIT_BAD_CONFIG, contract.EXIT_STOPPED_EMPTY_HANDED):
        return 0.0
    return SETTLE_S if verdict.code == contract.EXIT_FAILED else LEAVE_S


def ask_to_stop(processes: Mapping[Rank, subprocess.Popen[bytes]]) -> None:
    for rank, process in processes.items():
        if rank.leads and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(b"stop\n")
                process.stdin.flush()


def show_all_stacks_on_usr1(processes: Mapping[Rank, subprocess.Popen[bytes]]) -> None:
    """Where every thread of every rank is, written to the log; of this process there is nothing to show."""

    def forward(number: int, frame: Any) -> None:
        for process in list(processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGUSR1)
                time.sleep(STACKS_APART_S)

    signal.signal(signal.SIGUSR1, forward)


def end(processes: Mapping[Rank, subprocess.Popen[bytes]], within_s: float) -> None:
    """Each has so long to leave by itself."""
    until = time.monotonic() + within_s
    for process in processes.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
    for process in processes.values():
        if process.poll() is None:
            process.kill()
    for process in processes.values():
        process.wait()


def tell(verdict: Verdict, processes: Mapping[Rank, subprocess.Popen[bytes]], job: Path, run: Run) -> None:
    """In the log and in the status, unless the leader has."""
    if verdict.culprit is None:
        return
    process = processes[verdict.culprit]
    reason = reason_of(verdict.culprit, job)
    what = describe(verdict.culprit, process.pid) + " "
    what += f"failed: {reason}" if reason and process.returncode >= 0 else ending(process.returncode)
    kept = newest_checkpoint(run.folder)
    print(f"{what}; the other {len(processes) - 1} were ended; last good checkpoint: {kept or 'none'}", file=sys.stderr)
    sys.stderr.flush()
    run.progress.phase("failed", what)


def reason_of(rank: Rank, job: Path) -> Optional[str]:
    """What it has left behind, written by rank.py."""
    try:
        return str(json.loads((job / f"failure-{rank.number}.json").read_text(encoding="utf-8"))["error"])
    except (OSError, ValueError, KeyError):
        return None


def newest_checkpoint(folder: Path) -> Optional[Path]:
    """As checkpoint.py has it, without torch."""
    marked = [path.parent for path in (folder / contract.CHECKPOINTS).glob(f"step-*/{contract.CHECKPOINT_MARKER}")]
    return max(marked, key=lambda path: int(path.name[len("step-") :]), default=None)
