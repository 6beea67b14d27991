"""One process of a run with one process a device; started by supervisor.py and by nobody else.

    python rank.py JOB-FOLDER RANK PID-OF-THE-SUPERVISOR

Rule: it never outlives its supervisor. Its exit code says whether its end was its own doing (ranks.py); its own failure
is in the log with its traceback, and in the job's folder in one line.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional

PR_SET_PDEATHSIG = 1


def end_with(supervisor: int) -> None:
    """Before anything else: the kernel kills this process when its parent is gone, however that went."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        sys.exit(f"rank.py: its supervisor (pid {supervisor}) is gone already")


if __name__ == "__main__":
    end_with(int(sys.argv[3]))

import contract  # noqa: E402
from config import resolve  # noqa: E402
from progress import Progress  # noqa: E402
from ranks import ENDS_OF_A_RUN, EXIT_LEADER_TELLS, EXIT_PART_DONE, EXIT_PEER_LOST, Rank  # noqa: E402
from start import Run  # noqa: E402
from stopping import StopRequest  # noqa: E402
from supervisor import JOB, OF_THE_SUPERVISOR  # noqa: E402
from train import answer_for, carry_out  # noqa: E402
from watchdog import Watchdog  # noqa: E402


class Follower(Progress):
    """What a rank says that is not the leader: named lines in the log, and none of the records."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    def say(self, line: str) -> None:
        print(f"[{self._name}] {line}", flush=True)

    def line(self, step: int, total_steps: int, loss: float, facts: Dict[str, Any]) -> None:
        pass

    def compiling(self, done: int, total: int) -> None:
        pass

    def runtime(self, facts: Dict[str, Any]) -> None:
        pass

    def _update(self, *, force: bool = False, **changes: Any) -> None:
        pass


def main(arguments: List[str]) -> int:
    job, number = Path(arguments[0]), int(arguments[1])
    record = json.loads((job / JOB).read_text(encoding="utf-8"))
    ranks = [Rank(**one) for one in record["ranks"]]
    rank = ranks[number]
    stop = StopRequest()
    listen(stop)
    folder = Path(record["folder"])
    config, _ = resolve({name: (value, JOB) for name, value in record["settings"].items()})
    progress = Progress(folder, first_process=os.getppid()) if rank.leads else Follower(folder, rank.name)
    run = Run(config, contract.RunSpec(**record["spec"]), folder, progress, stop)
    if rank.leads:
        return lead(run, record["places"], rank, ranks, job)
    try:
        follow(run, rank, ranks, job)
    except Exception as error:
        return failed(error, rank, job)
    return EXIT_PART_DONE


def listen(stop: StopRequest) -> None:
    """Signals are the supervisor's: it says over standard input when to stop, and by its end that it is gone."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_SUPERVISOR)

    def hear() -> None:
        while os.read(0, 100):
            stop.asked = True
        os._exit(contract.EXIT_FAILED)

    threading.Thread(target=hear, name="supervisor", daemon=True).start()


def lead(run: Run, places: Dict[str, str], rank: Rank, ranks: List[Rank], job: Path) -> int:
    def ask_all_for_stacks() -> None:
        os.kill(os.getppid(), signal.SIGUSR1)

    def work() -> int:
        from links import Member, lost_peer

        with Watchdog(run.progress, run.config.watchdog, show=ask_all_for_stacks):
            try:
                return carry_out(run, places, Member(rank, ranks, job))
            except Exception as error:
                lost = lost_peer(error)
                if lost is None:
                    raise
                return failed(error, rank, job)

    return answer_for(work, run.progress)


def follow(run: Run, rank: Rank, ranks: List[Rank], job: Path) -> None:
    """A target's work, or that of a drafter which does not lead: what stages.py does for the leader."""
    import torch
    from checkpoint import Checkpoint, load_checkpoint
    from devices import alike
    from handoff import serve
    from links import Member
    from loop import Task, course_of, new_drafter, train_drafter
    from prepare import prepare

    config, spec, member = run.config, run.spec, Member(rank, ranks, job)
    member.wait_for_prepared()
    device = member.device
    placement = alike(device, targets=member.targets, drafters=member.drafters)
    resumed: Optional[Checkpoint] = None
    if spec.resume_from is not None:
        resumed = load_checkpoint(Path(spec.resume_from), device)
    torch.set_num_threads(config.threads)
    prepared = prepare(run, resumed=resumed, device=device)
    drafter = new_drafter(config, prepared, device, resumed) if rank.role == "drafter" else None
    links = member.join()
    links.introduce()
    if drafter is None and not spec.warmup:
        serve(course_of(config, resumed, placement), prepared, config, links)
    elif drafter is not None:
        prepared.target.forget_layers()
        train_drafter(Task(run, prepared, drafter, resumed, placement, links), only_compile=spec.warmup)
    links.close()


def failed(error: Exception, rank: Rank, job: Path) -> int:
    from links import lost_peer
    from rank_crew import FailedElsewhere

    lost = lost_peer(error)
    if lost is None and caused_by(error, FailedElsewhere):
        return EXIT_LEADER_TELLS
    if lost is not None:
        print(f"[{rank.name}] {lost}", file=sys.stderr, flush=True)
    else:
        print(f"[{rank.name}] failed:", file=sys.stderr)
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
    contract.write_json(job / f"failure-{rank.number}.json", {"error": str(lost or f"{type(error).__name__}: {error}")})
    return contract.EXIT_FAILED if lost is None else EXIT_PEER_LOST


def caused_by(error: Optional[BaseException], kind: type) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__
    return False


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if code not in (*ENDS_OF_A_RUN, EXIT_PART_DONE):
        # Threads of a group whose other side is gone would keep the interpreter from ending.
        os._exit(code)
    sys.exit(code)
