"""Op adopt_session: a record for a training that orch did not start, found in a tmux session of the user's own server.

Rule: looked at from outside: /proc, files, and what its interpreter says of its folders; torch is never imported, the
training is neither asked nor touched. From then on a keeper holds live.lock for as long as it lives.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from . import cache_run, fingerprint, foreign_code, journal, kept_files, live, process, records, session
from .errors import OpError
from .gpu_identity import gpu_facts
from .install import install_library
from .preflight import python_facts
from .records import Record, contract
from .variables import may_be_secret, without_secrets

FINGERPRINT_DEADLINE_S = 20.0
KEEPER_DEADLINE_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
HISTORY_LINES = "-"
"""All that the pane remembers."""
NOT_TRAININGS = (
    *("sh", "bash", "dash", "zsh", "fish", "tmux", "tee", "cat", "less", "tail", "head", "grep", "sleep", "watch"),
    *("uv", "timeout", "flock", "strace"),  # they start what follows, and wait for it
    *("screen", "ssh", "su", "sudo", "script", "vim", "vi", "nano", "top", "htop", "nvtop", "nvidia-smi", "time"),
)


OF_A_SHELL = ("TMUX", "TMUX_PANE", "SHLVL", "PWD", "OLDPWD", "_", "COLUMNS", "LINES", "WINDOWID", "PS1")
"""Variables of the terminal that it was typed into: of no two are they the same, and no training depends on them."""


class Pane(NamedTuple):
    id: str
    pid: int
    piped: bool
    """Somebody else's pipe-pane copies it already."""


def adopt_session(params: Record, body: bytes, channel: Any) -> Record:
    """base, session (its name), socket (None: tmux's default), pid (of the training; None: the only one), run_id, spec
    (as for start_run), who, expected, orch_version, container. Needs the lease.

    {run_id, pid, argv, cwd, started_at, log, notes}. Raises OpError: busy, missing (no session, or nothing in it that
    is a training), several (more than one), io."""
    base = records.base_folder(params)
    folder = records.run_folder(base, params.get("run_id"))
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    if live.is_held(base):
        content = live.facts(base)["content"]
        run_id = content.get("run_id") if isinstance(content, dict) else None
        raise OpError(
            "busy", "a run is live; nothing was adopted", "run %s" % (run_id or "that live.lock does not name")
        )
    name = str(params.get("session") or "")
    tmux = ["tmux", *(["-S", str(params["socket"])] if params.get("socket") else [])]
    pane, stat, others = find_training(panes(tmux, name), name, params.get("pid"))
    record, notes = run_record(params, folder, name, stat)
    notes += ["session %s also has %s, which is not adopted" % (name, other) for other in others]
    record["adopted"].update(pane=pane.id, tmux=tmux)
    detail = {"run_id": record["run_id"], "session": name, "pid": stat.pid}
    try:
        with journal.begin(base, "adopt", params.get("who"), detail):
            os.mkdir(folder, 0o700)
            records.write_record(folder, contract.RUN_SPEC, kept(record))
            _write_fingerprint(folder, base, record, params)
            cache_run.write_before(base, folder)
            log, note = join_log(tmux, pane, stat.pid, os.path.join(folder, contract.RUN_LOG))
            record["adopted"]["copied"] = log == "pane" and note is None
            records.write_record(folder, contract.RUN_SPEC, kept(record))
            _start_keeper(base, folder, stat)
    except (OSError, subprocess.SubprocessError) as error:
        raise OpError("io", "session %s could not be adopted: %s" % (name, error), folder) from error
    told = {name: record[name] for name in ("run_id", "argv", "cwd")}
    return dict(told, pid=stat.pid, started_at=record["created_at"], log=log, notes=[*notes, *([note] if note else [])])


def panes(tmux: List[str], name: str) -> List[Pane]:
    """Raises OpError("missing")."""
    argv = [*tmux, "list-panes", "-s", "-t", "=%s:" % name, "-F", "#{pane_id} #{pane_pid} #{pane_pipe} #{pane_dead}"]
    try:
        code, said = session.run_tmux(argv)
    except session.TmuxError as error:
        raise OpError("missing", "tmux cannot be asked for session %s: %s" % (name, error)) from error
    if code and not any(text in said for text in session.NOBODY):
        raise OpError("missing", "tmux cannot be asked for session %s" % name, said)
    if code:
        failed, there = session.run_tmux([*tmux, "list-sessions", "-F", "#{session_name}"])
        sessions = "none" if failed else ", ".join(there.split("\n"))
        raise OpError("missing", "there is no tmux session %s" % name, said + "\nsessions: " + sessions)
    rows = [line.split() for line in said.splitlines()]
    return [Pane(row[0], int(row[1]), row[2] == "1") for row in rows if len(row) == 4 and row[3] == "0"]


def find_training(found: List[Pane], name: str, wanted: int | None = None) -> Tuple[Pane, process.Stat, List[str]]:
    """The process `wanted`; None: in each pane the first one, from the pane's own down, that is no shell and no tool; a
    Python before others, which are told. Raises OpError naming what there is: "missing", "several"."""
    below = _children()
    candidates = []
    seen: List[str] = []
    for pane in found:
        waiting = [pane.pid]
        while waiting:
            pid = waiting.pop(0)
            stat = process.read_stat(pid)
            if stat is None or stat.dead:
                continue
            argv = process.command_line(pid)
            seen.append("%d %s" % (pid, " ".join(without_secrets(" ".join(argv).split()))[:120]))
            if pid == wanted:
                return pane, stat, []
            program = os.path.basename(argv[0]).lstrip("-") if argv else ""
            if wanted is not None or not argv or program in NOT_TRAININGS:
                waiting += below.get(pid, [])
                continue
            candidates.append((program.startswith("python"), seen[-1], pane, stat))
    if wanted is not None:
        raise OpError("missing", "there is no process %d in session %s" % (wanted, name), "\n".join(seen))
    if not candidates:
        raise OpError("missing", "nothing in session %s is a training" % name, "\n".join(seen) or "it has no live pane")
    likely = [one for one in candidates if one[0]] or candidates
    if len(likely) > 1:
        lines = ["%s (%.0f s of CPU)" % (one[1], _cpu_ticks(one[3].pid) / TICKS_PER_S) for one in likely]
        raise OpError(
            "several", "%d processes in session %s may be the training" % (len(likely), name), "\n".join(lines)
        )
    return likely[0][2], likely[0][3], [one[1] for one in candidates if one is not likely[0]]


def run_record(params: Record, folder: str, name: str, stat: process.Stat) -> Tuple[Record, List[str]]:
    """run.json, and what could not be seen. Raises OpError("missing") when it has just ended."""
    notes = []
    try:
        found = dict(word.partition("=")[::2] for word in _words(stat.pid, "environ"))
        environment = {key: value for key, value in found.items() if key not in OF_A_SHELL}
        cwd = os.readlink("/proc/%d/cwd" % stat.pid)
    except PermissionError:
        environment, cwd = {}, "/"
        notes.append("its environment cannot be read: it is another user's")
    except OSError as error:
        raise OpError("missing", "process %d has just ended" % stat.pid, str(error)) from error
    argv = without_secrets(process.command_line(stat.pid))
    record = dict(params.get("spec") or {})
    record.update(
        run_id=os.path.basename(folder),
        adopted={"session": name, "pid": stat.pid, "at": time.time(), "by": params.get("who")},
        argv=argv,
        cwd=cwd,
        python=python_of(argv, cwd, environment, stat.pid),
        release=cwd,
        environment=environment,
        session=None,
        created_at=process.started_at(stat.start_ticks),
        schema=contract.SCHEMA_VERSION,
    )
    return record, notes


def kept(record: Record) -> Record:
    """What run.json keeps of run_record: nobody needs what may be a secret in the environment again, and the folder may
    be pulled. The fingerprint has keyed hashes of all of it."""
    environment = {name: value for name, value in record["environment"].items() if not may_be_secret(name, value)}
    return dict(record, environment=environment)


def python_of(argv: List[str], cwd: str, environment: Dict[str, str], pid: int) -> str | None:
    """The interpreter as it was called: a venv is known by that path, which is a link. None: it is no Python."""
    word = argv[0] if argv else ""
    if not os.path.basename(word).startswith("python"):
        return None
    if "/" in word:
        return os.path.join(cwd, word)
    found = shutil.which(word, path=environment.get("PATH"))
    if found:
        return found
    with contextlib.suppress(OSError):
        return os.readlink("/proc/%d/exe" % pid)
    return None


def join_log(tmux: List[str], pane: Pane, pid: int, path: str) -> Tuple[str, str | None]:
    """(where it comes from, what to know). The pane's history, then all that comes; of a training that writes to a file
    that file."""
    with contextlib.suppress(OSError):
        out = os.readlink("/proc/%d/fd/1" % pid)
        if os.path.isfile(out) and not out.startswith("/dev/"):
            os.symlink(out, path)
            return out, None
    code, history = session.run_tmux([*tmux, "capture-pane", "-p", "-J", "-S", HISTORY_LINES, "-t", pane.id])
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(history + "\n" if code == 0 and history else "")
    if pane.piped:
        return "pane", "the pane is copied elsewhere already (pipe-pane): only what it showed until now is in the log"
    code, said = session.run_tmux([*tmux, "pipe-pane", "-o", "-t", pane.id, "exec cat >> %s" % shlex.quote(path)])
    return "pane", None if code == 0 else "the pane could not be copied: %s" % said


def _write_fingerprint(folder: str, base: str, record: Record, params: Record) -> None:
    observed = {name: params.get(name) for name in ("orch_version", "container", "expected")}
    if record["python"]:
        observed["python"] = python_facts(record["python"])
    try:
        observed["gpus"] = gpu_facts()
    except ValueError as error:
        observed["gpus_error"] = str(error)
    told = fingerprint.collect(base, record, observed, FINGERPRINT_DEADLINE_S)
    listing = foreign_code.listing(record["cwd"], record["argv"], base)
    told["identity"].update(release={"tree_hash": None, "git": None, "listing": listing}, edited={})
    for name in ("release", "edited"):
        told["unknown"].pop(name, None)
    # What is edited in place later is then nowhere else.
    kept_files.keep(folder, {sha256: os.path.join(record["cwd"], path) for path, sha256 in listing.items()})
    fingerprint.put(folder, record, told)


def _start_keeper(base: str, folder: str, stat: process.Stat) -> None:
    """Raises OSError: it did not come up, or another run is live."""
    identity = process.identity_from(stat)
    records.write_record(folder, contract.WRAPPER, {"run_id": os.path.basename(folder), "training": identity})
    command = [sys.executable, "-I", "-S", install_library(base), "keep", "--detach", folder]
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd=folder, timeout=KEEPER_DEADLINE_S, check=False)
    until = time.monotonic() + KEEPER_DEADLINE_S
    while time.monotonic() < until:
        if (records.read_record(folder, contract.WRAPPER) or {}).get("wrapper") or not process.is_alive(identity):
            return
        time.sleep(0.02)
    raise OSError("its keeper did not come up")


def _children() -> Dict[int, List[int]]:
    found: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        stat = process.read_stat(int(name)) if name.isdigit() else None
        if stat is not None:
            found.setdefault(stat.ppid, []).append(stat.pid)
    return found


def _cpu_ticks(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%d/stat" % pid, "rb") as stream:
        rest = stream.read().rpartition(b")")[2].split()
        return sum(int(rest[at]) for at in (11, 12, 13, 14))  # its children's, too
    return 0


def _words(pid: int, name: str) -> List[str]:
    with open("/proc/%d/%s" % (pid, name), "rb") as stream:
        return process.parse_words(stream.read())
