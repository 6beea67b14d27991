"""Op runs_overview: what the records of many runs say, in one answer. Reads files only, no process is looked for.

Rule: a run whose folder is half written, foreign or vanishing is told as far as it goes, or left out; never an error.
What a fingerprint says is taken from the few words that are kept beside it, for there may be hundreds of them.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, List, Tuple

from . import live, process, records, remarks, samples
from .errors import OpError
from .mark import MARK
from .observe import MAX_LISTED, checkpoints, recorded_run
from .records import Record, contract

TAIL_BYTES = 4096
"""Of the log, for the last rate that it printed."""
SAMPLES = 16
TOLD_OF_SPEC = (
    *("run_id", "created_at", "release", "argv", "cwd", "resume_from", "launched_by", "adopted"),
    *("payload", "targets", "drafters", "warmup"),
)
TOLD_OF_RESULT = ("acceptance_length",)


def runs_overview(params: Record, body: bytes, channel: Any) -> Tuple[Record, bytes]:
    """base, last (how many, the newest) or only (one run's id), tail_bytes (of each log), known ({run id: stamp}).
    {now, booted_at, live, total, runs}, oldest first.

    Each run as in run_facts, with less of its spec, with `git`, `tree_hash` and `cache_before` of its fingerprint,
    `cache_after`, `mark`, `remarks`, `samples` of its rate, `stamp` of its files, and `log` {size, mtime, tail_bytes}.
    One that has ended and is as it was when it had the known stamp is only {id, stamp, same}. The body is the logs'
    tails, one behind the other.
    """
    base = records.base_folder(params)
    ids = records.run_ids(base)
    count = min(int(params.get("last", MAX_LISTED)), MAX_LISTED)
    wanted = ids[-count:] if count > 0 else []
    if params.get("only") is not None:
        wanted = [params["only"]]
    known = params.get("known") or {}
    tail_bytes = min(int(params.get("tail_bytes", TAIL_BYTES)), TAIL_BYTES)
    live_facts = live.facts(base)
    runs: List[Record] = []
    tails: List[bytes] = []
    for run_id in wanted:
        channel.check()
        # Before its records: what is written while they are read makes another stamp next time.
        stamp = folder_stamp(os.path.join(base, records.RUNS, str(run_id)))
        if stamp is not None and known.get(run_id) == stamp:
            runs.append({"id": run_id, "stamp": stamp, "same": True})
            continue
        try:
            run, tail = _told(base, run_id, live_facts, tail_bytes)
        except OpError:
            continue  # removed while we looked
        runs.append(dict(run, stamp=stamp if isinstance(run["exit"], dict) and "broken" not in run["exit"] else None))
        tails.append(tail)
    facts = {"now": time.time(), "booted_at": process.booted_at(), "live": live_facts}
    return dict(facts, total=len(ids), runs=runs), b"".join(tails)


def _told(base: str, run_id: Any, live_facts: Record, tail_bytes: int) -> Tuple[Record, bytes]:
    run = recorded_run(base, run_id, live_facts, _read_small)
    folder = run["folder"]
    spec, result = run["spec"] or {}, run["result"] or {}
    tail = _log_tail(run, tail_bytes)
    mark, brief = records.read_record(folder, MARK), _brief(folder)
    told = {name: spec[name] for name in (*TOLD_OF_SPEC, "broken") if name in spec}
    run.update(
        mark=mark,
        remarks=remarks.told(folder),
        samples=samples.rate_samples(folder, SAMPLES),
        spec=told or None,
        result={name: result[name] for name in (*TOLD_OF_RESULT, "broken") if name in result},
        checkpoints=checkpoints(folder),
        **dict(brief, broken=[one["broken"] for one in (mark or {}, brief) if one.get("broken")]),
    )
    return {name: value for name, value in run.items() if name not in ("runtime", "cache")}, tail


def _read_small(folder: str, name: str) -> Record | None:
    return None if name == contract.RUNTIME else records.read_record(folder, name)


def folder_stamp(folder: str) -> str | None:
    """Another one once a file of the folder is added, removed, replaced or written to. None: it cannot be read."""
    digest = hashlib.sha256()
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError:
        return None
    for name, about in found:
        digest.update(b"%s %d %d %d\0" % (os.fsencode(name), about.st_ino, about.st_size, about.st_mtime_ns))
    return digest.hexdigest()[:24]


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


def _brief(folder: str) -> Record:
    brief = records.read_record(folder, records.BRIEF)
    if brief is None or "broken" in brief:
        kept = records.read_record(folder, contract.FINGERPRINT)
        brief = dict(brief_of(kept or {}), broken=((brief or {}) if kept is None else kept).get("broken"))
    cache = records.read_record(folder, contract.CACHE) or {}
    told = {name: brief.get(name) for name in ("git", "tree_hash", "cache_before")}
    return dict(told, cache_after=cache.get("after"), broken=brief.get("broken") or cache.get("broken"))


def brief_of(fingerprint: Record) -> Record:
    """What a list shows of it."""
    identity, observed = fingerprint.get("identity"), fingerprint.get("observed")
    # Before orch.fingerprint/2 the sections stood side by side.
    identity = identity if isinstance(identity, dict) else fingerprint
    observed = observed if isinstance(observed, dict) else fingerprint
    release = identity.get("release")
    release = release if isinstance(release, dict) else {}
    git = release.get("git")
    if isinstance(git, dict):
        dirty = git.get("dirty_files")
        git = {"commit": git.get("commit"), "branch": git.get("branch")}
        git["dirty"] = len(dirty) if isinstance(dirty, list) else None
    return {"git": git, "tree_hash": release.get("tree_hash"), "cache_before": observed.get("cache")}
