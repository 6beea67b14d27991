"""Ops run_facts, list_runs and wait_run: what there is to know of a run, as it stands, in one pass.

Rule: facts, no judgement (the controller's probes judge); nothing here writes, and only a wanted session
costs a process (`tmux list-sessions`).
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Tuple, Union

from . import journal, live, process, records, session
from .cgroup import container_facts
from .errors import OpError
from .identity import boot_id, start_ticks
from .past import last_failure
from .records import Record, contract

MAX_TAIL_BYTES = 8 * 1024 * 1024
MAX_LISTED = 500
POLL_S = 0.1

Reader = Callable[[str, str], Union[Record, None]]


def run_facts(params: Record, body: bytes, channel: Any) -> Tuple[Record, bytes]:
    """params: base, run_id (None: the live run, else the newest), log_tail_bytes, surroundings (also the container
    and the last failure). The body is the log's tail."""
    base = records.base_folder(params)
    live_facts = live.facts(base)
    run_id = params.get("run_id") or records.latest_run(base, live_facts)
    # From here on the order matters: a run's end is recorded before the lock is freed.
    run, tail = (None, b"") if run_id is None else _run(base, run_id, live_facts, int(params.get("log_tail_bytes", 0)))
    wanted = ((run or {}).get("spec") or {}).get("session")
    runs = records.run_ids(base)[-MAX_LISTED:]
    unfinished = journal.unfinished(base)
    facts = {
        "now": time.time(),
        "boot_id": boot_id(),
        "init_start_ticks": start_ticks(1),
        "booted_at": process.booted_at(),
        "live": live_facts,
        "run": run,
        "session": session_facts(base, wanted, session.look(base, str(wanted)) if wanted else None),
        "release": release(base),
        "disk_free_bytes": disk_free_bytes(base),
        "runs": runs,
        "unfinished": unfinished[-1] if unfinished else None,
    }
    if params.get("surroundings"):
        held = (live_facts["content"] or {}).get("run_id") if live_facts["held"] else None
        facts.update(container=container_facts(), failure=last_failure(base, runs, [held]))
    return facts, tail


def list_runs(params: Record, body: bytes, channel: Any) -> Record:
    """{"live", "runs": [{run_id, created_at, release, settings, exit, checkpoints}]}, oldest first."""
    base = records.base_folder(params)
    listed = []
    for run_id in records.run_ids(base)[-MAX_LISTED:]:
        folder = records.run_folder(base, run_id)
        spec = records.read_record(folder, contract.RUN_SPEC) or {}
        exit_record = records.read_record(folder, contract.EXIT)
        about = {"run_id": run_id, "created_at": spec.get("created_at"), "release": spec.get("release")}
        about["settings"] = spec.get("settings")
        listed.append(dict(about, exit=exit_record, checkpoints=checkpoints(folder)))
    return {"live": live.facts(base), "runs": listed}


def _run(base: str, run_id: Any, live_facts: Record, tail_bytes: int) -> Tuple[Record, bytes]:
    run = recorded_run(base, run_id, live_facts)
    log, tail = _log(os.path.join(run["folder"], contract.RUN_LOG), tail_bytes)
    others = strays(run)
    more = {"oom_kills": process.oom_kills(), "strays": others, "log": log, "stopped": stopped(run, others)}
    return dict(run, checkpoints=checkpoints(run["folder"]), **more), tail


def recorded_run(base: str, run_id: Any, live_facts: Record, read: Reader = records.read_record) -> Record:
    """What its records say, and whether those live who they name. Raises OpError("missing")."""
    folder = records.run_folder(base, run_id)
    if not os.path.isdir(folder):
        raise OpError("missing", "there is no run %s" % run_id, folder)
    spec = read(folder, contract.RUN_SPEC)
    if spec and "environment" in spec:
        # Values may be secrets: the names are enough for whoever looks.
        spec = dict(spec, environment=sorted(spec["environment"]))
    wrapper = read(folder, contract.WRAPPER) or {}
    content = live_facts.get("content") or {}
    mine = content if content.get("run_id") == run_id else {}
    wrapper_identity = wrapper.get("wrapper") or mine.get("wrapper")
    training = records.training_identity(folder, live_facts, read)
    recorded = training or wrapper_identity
    return {
        "id": run_id,
        "folder": folder,
        "spec": spec,
        "wrapper": wrapper or None,
        "exit": read(folder, contract.EXIT),
        "stop": read(folder, contract.STOP),
        "status": read(folder, contract.STATUS),
        "result": read(folder, contract.RESULT),
        "runtime": read(folder, contract.RUNTIME),
        "cache": read(folder, contract.CACHE),
        "wrapper_alive": process.is_alive(wrapper_identity),
        "training_alive": process.is_alive(training),
        "wrapper_pid": wrapper_identity["pid"] if wrapper_identity else None,
        "training_pid": training["pid"] if training else None,
        "same_boot": process.same_boot(recorded) if recorded else None,
        "recorded": recorded,
        "claimed": os.path.exists(os.path.join(folder, records.CLAIM)),
    }


def strays(run: Record) -> List[Record]:
    """What was started as part of this run and lives, without its wrapper and its first process. Reads all of /proc."""
    known = (run["wrapper_pid"], run["training_pid"])
    return [process.describe(stat) for stat in records.processes_of_run(run["folder"]) if stat.pid not in known]


def stopped(run: Record, others: List[Record]) -> List[int]:
    """Of the run's first process and these others, the pids of those that SIGSTOP or Ctrl-Z stopped."""
    first = process.read_stat(run["training_pid"]) if run["training_alive"] else None
    own = [first.pid] if first is not None and first.stopped else []
    return own + [other["pid"] for other in others if other["state"] == process.STOPPED]


def checkpoints(folder: str) -> List[Dict[str, Any]]:
    """Sorted by step, then name."""
    top = os.path.join(folder, contract.CHECKPOINTS)
    try:
        names = os.listdir(top)
    except OSError:
        return []
    found = [
        {"name": name, "complete": os.path.exists(os.path.join(top, name, contract.CHECKPOINT_MARKER))}
        for name in names
        if os.path.isdir(os.path.join(top, name))
    ]
    return sorted(found, key=lambda entry: (_step_of(entry["name"]), entry["name"]))


def _step_of(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _log(path: str, tail_bytes: int) -> Tuple[Record | None, bytes]:
    try:
        with open(path, "rb") as stream:
            found = os.fstat(stream.fileno())
            offset = max(0, found.st_size - min(tail_bytes, MAX_TAIL_BYTES))
            stream.seek(offset)
            tail = stream.read(found.st_size - offset)
    except OSError:
        return None, b""
    return {"size": found.st_size, "mtime": found.st_mtime, "tail_offset": offset}, tail


def session_facts(base: str, wanted: Any, seen: session.SessionFacts | None) -> Record:
    """seen: what tmux said of it; None: nobody has asked."""
    seen = seen or session.SessionFacts(None, None, None)
    attach = session.attach_argv(base, str(wanted)) if seen.present else None
    return dict(seen._asdict(), wanted=wanted or None, attach=attach)


def release(base: str) -> str | None:
    with contextlib.suppress(OSError):
        target = os.readlink(os.path.join(base, "current"))
        # A link that orch did not make leads to no release.
        return os.path.join(base, target) if os.path.dirname(target) == "releases" else None
    return None


def disk_free_bytes(base: str) -> int | None:
    """Also before the first deploy has made the folder: where it will be."""
    while not os.path.lexists(base) and os.path.dirname(base) != base:
        base = os.path.dirname(base)
    with contextlib.suppress(OSError):
        found = os.statvfs(base)
        return found.f_bavail * found.f_frsize
    return None


def wait_run(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, run_id, condition {"kind": "end"|"first-step"|"step", "step": n}, wait_s.

    Sends {"status": ...} whenever status.json has changed. Ends with {"met", "reason": "condition"|"ended"|
    "ended_unknown"|"timeout", "status", "exit"}; "ended_unknown": nobody holds live.lock and there is no exit.json.
    Raises OpError: there is no such run.
    """
    base = records.base_folder(params)
    folder = records.run_folder(base, params.get("run_id"))
    wanted_step = _wanted_step(params.get("condition") or {"kind": "end"})
    until = time.monotonic() + float(params["wait_s"])
    if not os.path.isdir(folder):
        raise OpError("missing", "there is no run %s" % params.get("run_id"), folder)
    seen, status = None, None
    while True:
        channel.check()
        held = live.is_held(base) and (live.read_content(base) or {}).get("run_id") == os.path.basename(folder)
        exit_record = records.read_record(folder, contract.EXIT)  # after the lock: it is written before that is freed
        stamp = file_stamp(os.path.join(folder, contract.STATUS))
        if stamp != seen:
            seen, status = stamp, records.read_record(folder, contract.STATUS)
            channel.emit({"status": status})
        answer = {"status": status, "exit": exit_record}
        if wanted_step is not None and _step(status) >= wanted_step:
            return dict(answer, met=True, reason="condition")
        if exit_record is not None:
            return dict(answer, met=wanted_step is None, reason="ended")
        if not held:
            return dict(answer, met=False, reason="ended_unknown")
        if time.monotonic() >= until:
            return dict(answer, met=False, reason="timeout")
        channel.cancelled.wait(min(POLL_S, max(0.0, until - time.monotonic())))


def _wanted_step(condition: Record) -> int | None:
    """None: the end."""
    kind = condition.get("kind")
    if kind == "end":
        return None
    if kind == "first-step":
        return 1
    if kind == "step" and isinstance(condition.get("step"), int):
        return int(condition["step"])
    raise OpError("bad_request", "not a condition to wait for: %r" % (condition,))


def _step(status: Record | None) -> int:
    step = (status or {}).get("step")
    return step if isinstance(step, int) else -1


def file_stamp(path: str) -> Tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
