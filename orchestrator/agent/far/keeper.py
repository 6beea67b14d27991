"""Holds live.lock for a run that was adopted, as long as its training lives.   python3 <lib> keep [--detach] <folder>

Rule: it only waits. How the training ended is not known to anybody who is not its parent; when, is recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any, Dict, List

from . import cache_run, live, process, records, session
from .records import contract

POLL_S = 0.5


def main(argv: List[str]) -> int:
    if argv[0] == "--detach":
        argv = argv[1:]
        if os.fork():
            return 0
        os.setsid()
    folder = os.path.abspath(argv[0])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    base, run_id = os.path.dirname(os.path.dirname(folder)), os.path.basename(folder)
    training = (records.read_record(folder, contract.WRAPPER) or {})["training"]
    lock = live.acquire(base)
    if lock is None:
        return 9
    mine = {"run_id": run_id, "wrapper": process.identity_of(os.getpid()), "training": training, "release": None}
    mine["started_at"] = time.time()
    live.write_content(lock, mine)
    record = dict(mine, oom_kills=process.oom_kills(training["pid"]), python=sys.executable)
    records.write_record(folder, contract.WRAPPER, record)
    while process.is_alive(training):
        time.sleep(POLL_S)
    with contextlib.suppress(OSError):  # a full disk must not keep the target busy
        records.write_record(folder, contract.WRAPPER, dict(record, ended_at=time.time()))
        spec = records.read_record(folder, contract.RUN_SPEC) or {}
        _end_copy(spec.get("adopted") or {})
        cache_run.write_after(folder, spec)
    os.close(lock)
    return 0


def _end_copy(adopted: Dict[str, Any]) -> None:
    """What is typed in the pane from now on is not the training's."""
    if adopted.get("copied"):
        with contextlib.suppress(session.TmuxError):
            session.run_tmux([*adopted["tmux"], "pipe-pane", "-t", adopted["pane"]])
