"""Op start_run: makes the run's folder, starts its wrapper in tmux or detached, and answers once the truth is known.

Rule: "started" means that the wrapper holds live.lock, exec has worked, and both identities are on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from typing import Any, Callable

from . import cache_run, fingerprint, journal, live, records, session
from .errors import OpError
from .install import install_library
from .records import Record, contract
from .start_record import resolve_python, training_environment

TURN_DEADLINE_S = 8.0
"""How long another start may take before this one says busy."""
START_DEADLINE_S = 15.0
LAST_WAIT_S = 4.0
"""For a wrapper that has claimed the start at the last moment. All three fit into one request's time."""
POLL_S = 0.01
LOG_TAIL_BYTES = 64 * 1024


def start_run(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, run_id, spec (the payload's part of run.json), argv, cwd, environment, release, session (name
    or None), python (replaces a first word `python`), watch_s (how long an early end is waited for), start_s,
    observed (for the fingerprint, see fingerprint.collect).

    {"started": true, run_id, pid, session, session_note, attach, ended: exit record or None, log_tail}
    {"started": false, "reason": "busy", live} or {"started": false, "reason": "exec", "start_error", ...}
    Raises OpError: exists, bad_request, start_failed (nothing runs), start_unknown.
    """
    base = records.base_folder(params)
    run_id = str(params.get("run_id"))
    folder = records.run_folder(base, run_id)
    os.makedirs(os.path.join(base, records.RUNS), mode=0o700, exist_ok=True)
    starting = live.acquire_start(base, TURN_DEADLINE_S)
    if starting is None:
        return {"started": False, "reason": "busy", "live": live.facts(base), "detail": "another start is under way"}
    try:
        if live.is_held(base):
            return {"started": False, "reason": "busy", "live": live.facts(base)}
        _whole_caches(base)
        record = _run_record(params, folder)
        with _journal_entry(base, record) as entry:
            note = _begin(base, folder, record, dict(params.get("observed") or {}))
            until = time.monotonic() + float(params.get("start_s", START_DEADLINE_S))
            try:
                outcome = _outcome(base, folder, record, until)
            except OSError as error:
                raise _start_failed(error, folder, record) from error
            entry.note(started=outcome["started"], pid=outcome.get("pid"))
    finally:
        os.close(starting)
    if outcome["started"]:
        name = record["session"] if note is None else None
        outcome.update(run_id=run_id, session=name, session_note=note)
        outcome["attach"] = session.attach_argv(base, name) if name else None
        outcome.update(_watch(folder, float(params.get("watch_s", 1.0))))
    return outcome


def _whole_caches(base: str) -> None:
    """A seeding or clearing of the compile caches that was cut short is carried through before anything uses them."""
    from .snapshots import unfinished

    if unfinished(base):
        from .cache_aside import finish_moving  # hardly ever

        finish_moving(base)
    if os.path.lexists(os.path.join(base, records.SEEDING)):
        from .cache_seed import finish_seeding  # hardly ever

        finish_seeding(base, describe=False)


def _run_record(params: Record, folder: str) -> Record:
    argv = params.get("argv")
    cwd = params.get("cwd")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise OpError("bad_request", "argv must be a list of words, not %r" % (argv,))
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise OpError("bad_request", "cwd must be an absolute path, not %r" % (cwd,))
    python = params.get("python")
    environment = training_environment(dict(params.get("environment") or {}), folder, python)
    wanted = params.get("session")
    record = dict(params.get("spec") or {})
    record.update(
        run_id=os.path.basename(folder),
        argv=resolve_python(argv, python, environment["PATH"]),
        cwd=cwd,
        python=python,
        release=params.get("release") or cwd,
        environment=environment,
        session=session.session_name(str(wanted)) if wanted else None,
        created_at=time.time(),
        schema=contract.SCHEMA_VERSION,
    )
    return record


def _journal_entry(base: str, record: Record) -> journal.Entry:
    """Raises OpError("disk_full") or OpError("start_failed")."""
    try:
        who = record.get("launched_by")
        detail = {"run_id": record["run_id"], "release": os.path.basename(str(record["release"]))}
        return journal.begin(base, "launch", str(who) if who else None, detail)
    except OSError as error:
        raise _start_failed(error, base, record) from error


def _start_failed(error: Exception, where: str, record: Record) -> OpError:
    kind = "disk_full" if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else "start_failed"
    return OpError(kind, "run %s could not be started: %s" % (record["run_id"], error), where)


def _begin(base: str, folder: str, record: Record, observed: Record) -> str | None:
    """Folder and wrapper; see _start_wrapper. Raises OpError; what a full disk left half done is taken away."""
    try:
        _make_folder(folder, record)
        fingerprint.write(folder, base, record, observed)
        cache_run.write_before(base, folder)
        return _start_wrapper(base, folder, record)
    except (OSError, subprocess.TimeoutExpired) as error:
        with contextlib.suppress(OSError):
            if os.path.isdir(folder) and records.claim(folder):
                shutil.rmtree(folder, ignore_errors=True)
        raise _start_failed(error, folder, record) from error


def _make_folder(folder: str, record: Record) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise OpError("exists", "run %s is there already" % record["run_id"], folder) from None
    records.write_record(folder, contract.RUN_SPEC, record)
    records.ReservedRecord(folder, contract.EXIT)  # before the wrapper begins: it can then say that the disk is full


def _start_wrapper(base: str, folder: str, record: Record) -> str | None:
    """Why there is no session although one was wanted (or that none was); None: it is there."""
    command = [sys.executable, "-I", "-S", install_library(base), "wrapper"]
    note = "no session was asked for"
    if record["session"]:
        try:
            session.start_session(base, record["session"], folder, [*command, folder])
            return None
        except session.TmuxError as error:
            note = "no session: %s" % error
    # It forks, and its first process is waited for here: nothing of it stays a child of the agent.
    subprocess.run(
        [*command, "--detach", folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        timeout=START_DEADLINE_S,
        check=False,
    )
    return note


def _outcome(base: str, folder: str, record: Record, until: float) -> Record:
    """What the wrapper made of it. Should it not show up, the start is taken back by claiming it."""

    def settled() -> Record | None:
        refused = records.read_record(folder, records.REFUSED)
        if refused is not None:
            if not os.path.exists(os.path.join(folder, contract.RUN_LOG)):
                shutil.rmtree(folder, ignore_errors=True)  # nothing ran: it holds run.json and the refusal
            return {"started": False, "reason": "busy", "live": {"held": True, "content": refused.get("live")}}
        exited = records.read_record(folder, contract.EXIT)
        if exited is not None and exited.get("start_error"):
            failure = exited["start_error"]
            if failure.get("error") in ("ENOSPC", "EDQUOT"):
                raise OpError("disk_full", "run %s: %s" % (record["run_id"], failure.get("message")), folder)
            return {"started": False, "reason": "exec", "start_error": failure, "folder": folder}
        wrapper = records.read_record(folder, contract.WRAPPER)
        if wrapper is not None and wrapper.get("training"):
            return {"started": True, "pid": wrapper["training"]["pid"]}
        return None

    outcome = _wait(settled, until)
    if outcome is None and not records.claim(folder):
        outcome = _wait(settled, time.monotonic() + LAST_WAIT_S)
        if outcome is None:
            raise OpError("start_unknown", "the wrapper began the start and did not say how it went", folder)
    if outcome is None:
        evidence = _evidence(base, folder, record)
        message = "the wrapper did not come up; nothing was started"
        start_error = {"error": "start_failed", "message": message}
        exit_record = records.ReservedRecord(folder, contract.EXIT)
        exit_record.write({"run_id": record["run_id"], "start_error": start_error})
        raise OpError("start_failed", message, evidence)
    return outcome


def _watch(folder: str, watch_s: float) -> Record:
    ended = _wait(lambda: records.read_record(folder, contract.EXIT), time.monotonic() + watch_s)
    return {"ended": ended, "log_tail": log_tail(folder) if ended else None}


def log_tail(folder: str) -> str:
    """Bytes that are not UTF-8 come as surrogates."""
    with contextlib.suppress(OSError), open(os.path.join(folder, contract.RUN_LOG), "rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        return stream.read().decode("utf-8", "surrogateescape")
    return ""


def _evidence(base: str, folder: str, record: Record) -> str:
    said = ""
    with contextlib.suppress(OSError), open(os.path.join(folder, records.WRAPPER_LOG), "rb") as stream:
        said = stream.read()[-4096:].decode("utf-8", "replace")
    screen = session.capture(base, record["session"]) if record["session"] else ""
    return (said + "\n" + screen).strip()


def _wait(condition: Callable[[], Record | None], until: float) -> Record | None:
    while True:
        found = condition()
        if found is not None:
            return found
        if time.monotonic() >= until:
            return None
        time.sleep(POLL_S)
