"""Op runs_overview: what the records of many runs say, in one answer. Reads files only, no process is looked for.

Rule: a run whose folder is half written, foreign or vanishing is told as far as it goes, or left out; never an error.
"""

from __future__ import annotations

import os
import time
from typing import Any, List, Tuple

from . import live, process, records
from .errors import OpError
from .mark import MARK
from .observe import MAX_LISTED, checkpoints, recorded_run
from .records import Record, contract

TAIL_BYTES = 4096
"""Of the log, for the last rate that it printed."""
TOLD_OF_SPEC = (
    *("run_id", "created_at", "release", "argv", "cwd", "resume_from", "launched_by"),
    *("payload", "targets", "drafters"),
)


def runs_overview(params: Record, body: bytes, channel: Any) -> Tuple[Record, bytes]:
    """base, last (how many, the newest) or only (one run's id), tail_bytes (of each log). {now, booted_at, live, total,
    runs}, oldest first.

    Each run as in run_facts, with less of its spec, with `git` and `tree_hash` of its fingerprint, `mark`, and `log`
    {size, mtime, tail_bytes}. The body is the logs' tails, one behind the other.
    """
    base = records.base_folder(params)
    ids = records.run_ids(base)
    count = min(int(params.get("last", MAX_LISTED)), MAX_LISTED)
    wanted = ids[-count:] if count > 0 else []
    if params.get("only") is not None:
        wanted = [params["only"]]
    live_facts = live.facts(base)
    runs: List[Record] = []
    tails: List[bytes] = []
    for run_id in wanted:
        channel.check()
        try:
            run = recorded_run(base, run_id, live_facts)
        except OpError:
            continue  # removed while we looked
        spec = run["spec"] or {}
        tail = _log_tail(run, min(int(params.get("tail_bytes", TAIL_BYTES)), TAIL_BYTES))
        tails.append(tail)
        told = {name: spec[name] for name in (*TOLD_OF_SPEC, "broken") if name in spec}
        run.update(
            mark=records.read_record(run["folder"], MARK),
            spec=told or None,
            checkpoints=checkpoints(run["folder"]),
            **_release(run["folder"]),
        )
        runs.append({name: value for name, value in run.items() if name not in ("result", "runtime")})
    facts = {"now": time.time(), "booted_at": process.booted_at(), "live": live_facts}
    return dict(facts, total=len(ids), runs=runs), b"".join(tails)


def _log_tail(run: Record, tail_bytes: int) -> bytes:
    """And puts `log` into the run."""
    run["log"] = None
    try:
        with open(os.path.join(run["folder"], contract.RUN_LOG), "rb") as stream:
            found = os.fstat(stream.fileno())
            tail = os.pread(stream.fileno(), tail_bytes, max(0, found.st_size - tail_bytes))
    except OSError:
        return b""
    run["log"] = {"size": found.st_size, "mtime": found.st_mtime, "tail_bytes": len(tail)}
    return tail


def _release(folder: str) -> Record:
    fingerprint = records.read_record(folder, contract.FINGERPRINT) or {}
    identity = fingerprint.get("identity")
    # Before orch.fingerprint/2 the sections stood side by side.
    release = (identity if isinstance(identity, dict) else fingerprint).get("release")
    release = release if isinstance(release, dict) else {}
    return {"git": release.get("git"), "tree_hash": release.get("tree_hash")}
