"""Runs one training and tells the truth about its end.   python3 <base>/lib/<hash> wrapper [--detach] <run folder>

Order: claim the start; take live.lock; spawn the training in a session of its own, its output appended
straight to run.log; record who runs (live.lock, wrapper.json); wait; exit.json; leave, which frees the lock.
Rule: nothing that happens to the terminal touches the training. The terminal shows a copy of the log.
Everything is imported at the start: the interpreter's own files may be replaced while a training runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

from . import cache_run, live, process, records
from .records import contract
from .terminal import LogCopy

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""To the training's process group. SIGINT and SIGQUIT come from Ctrl-C and Ctrl-\\ in the pane."""
IGNORED = (signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
EXIT_NOT_STARTED = 127
EXIT_REFUSED = 9


def main(argv: List[str]) -> int:
    if argv[0] == "--detach":
        argv = argv[1:]
        if os.fork():
            return 0
        os.setsid()
    folder = os.path.abspath(argv[0])
    _set_signals()
    _stderr_to(os.path.join(folder, records.WRAPPER_LOG))
    # What a login service or a careful parent set for itself is not meant for the training.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
        stream.write("0")
    return Wrapper(folder).run()


class Wrapper:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.run_id = os.path.basename(folder)
        self.base = os.path.dirname(os.path.dirname(folder))
        self.spec = records.read_record(folder, contract.RUN_SPEC) or {}
        self.started_at = time.time()
        self.oom_kills_before = process.oom_kills()

    def run(self) -> int:
        """The exit code for the terminal: the training's own, 128 + n for signal n."""
        if not records.claim(self.folder):
            return EXIT_REFUSED  # whoever asked for the start has given up and said so, or another wrapper has it
        try:
            exit_record = records.ReservedRecord(self.folder, contract.EXIT)
        except OSError as error:
            records.write_record(self.folder, contract.EXIT, self._not_begun(error))
            raise
        try:
            lock = live.acquire(self.base)
            if lock is None:
                refusal = {"reason": "busy", "live": live.read_content(self.base)}
                records.write_record(self.folder, records.REFUSED, refusal)
                return EXIT_REFUSED
            live.write_content(lock, self._content(None))
        except (OSError, live.LockTimeout) as error:
            exit_record.write(self._not_begun(error))
            raise
        return self._run_training(lock, exit_record)

    def _run_training(self, lock: int, exit_record: records.ReservedRecord) -> int:
        copy = LogCopy(os.path.join(self.folder, contract.RUN_LOG))
        try:
            child = self._spawn(lock)
        except (OSError, ValueError) as error:
            failure = explain_start_error(error, list(self.spec["argv"]), str(self.spec["cwd"]), self._environment())
            exit_record.write(self._exit_record(None, None, failure))
            copy.last_line("could not be started: %s" % failure["message"])
            return EXIT_NOT_STARTED
        forward_to(child.pid)
        copy.start()
        try:
            self._record_start(lock, child.pid)
        except OSError as error:
            # A training that nobody can find again must not live.
            os.killpg(child.pid, signal.SIGKILL)
            status, usage = wait_for(child.pid)
            exit_record.write(self._exit_record(status, usage, start_error(error, "not recorded: %s" % error)))
            return EXIT_NOT_STARTED
        status, usage = wait_for(child.pid)
        record = self._exit_record(status, usage, None)
        cache_run.write_after(self.folder, self.spec)
        exit_record.write(record)
        os.close(lock)  # the end is told: the terminal, which may be slow, must not keep the next run waiting
        copy.last_line(how_it_ended(record))
        code, number = record["exit_code"], record["signal"]
        return int(code) if code is not None else 128 + int(number)

    def _not_begun(self, error: Exception) -> Dict[str, Any]:
        return self._exit_record(None, None, start_error(error, "before the start: %s" % error))

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        """The training, once exec has worked. It keeps the lock's descriptor open: a killed wrapper
        must not free the target under a live training. Raises OSError."""
        log = os.open(os.path.join(self.folder, contract.RUN_LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            return subprocess.Popen(
                list(self.spec["argv"]),
                cwd=str(self.spec["cwd"]),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock,),
            )
        finally:
            os.close(log)

    def _environment(self) -> Dict[str, str]:
        return {str(name): str(value) for name, value in self.spec["environment"].items()}

    def _content(self, training: Any) -> Dict[str, Any]:
        return {
            "run_id": self.run_id,
            "wrapper": process.identity_of(os.getpid()),
            "training": training,
            "release": self.spec.get("release"),
            "started_at": self.started_at,
        }

    def _record_start(self, lock: int, pid: int) -> None:
        stat = process.read_stat(pid)  # ours and not yet reaped: it is there even if it has ended already
        content = self._content(process.identity_from(stat) if stat else None)
        live.write_content(lock, content)
        record = dict(content, oom_kills=self.oom_kills_before, python=sys.executable)
        records.write_record(self.folder, contract.WRAPPER, record)

    def _exit_record(self, status: int | None, usage: Any, start_error: Any) -> Dict[str, Any]:
        ended = status is not None
        exited = status is not None and os.WIFEXITED(status)
        killed = status is not None and os.WIFSIGNALED(status)
        after = process.oom_kills()
        before = self.oom_kills_before
        return {
            "run_id": self.run_id,
            "exit_code": os.WEXITSTATUS(status) if status is not None and exited else None,
            "signal": os.WTERMSIG(status) if status is not None and killed else None,
            "start_error": start_error,
            "started_at": self.started_at,
            "ended_at": time.time(),
            "max_rss_kib": usage.ru_maxrss if ended else None,
            "user_s": usage.ru_utime if ended else None,
            "system_s": usage.ru_stime if ended else None,
            "oom_kills": None if after is None or before is None else after - before,
        }


def _set_signals() -> None:
    """Whatever was ignored or blocked here is not handed down: functions become the default at exec."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    # SIGPIPE and SIGXFSZ are ignored by Python itself; subprocess restores those two.
    for number in (*IGNORED, *FORWARDED):
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def forward_to(group: int) -> None:
    def handler(number: int, frame: Any) -> None:
        # The leader is not reaped before these handlers are taken away: the group is the training's own.
        with contextlib.suppress(OSError):
            os.killpg(group, number)

    for number in FORWARDED:
        signal.signal(number, handler)


def wait_for(pid: int) -> tuple[int, Any]:
    """(wait status, resource usage). Reaps only after the signal handlers no longer point at the pid."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: None)
    _, status, usage = os.wait4(pid, 0)
    return status, usage


def start_error(error: BaseException, message: str) -> Dict[str, Any]:
    """error: the errno's name, or the exception's; message: a sentence that names what is at fault."""
    number = getattr(error, "errno", None)
    return {"error": errno.errorcode.get(number) if number else type(error).__name__, "message": message}


def explain_start_error(error: Exception, argv: List[str], cwd: str, environment: Dict[str, str]) -> Dict[str, Any]:
    number = getattr(error, "errno", None)
    if not os.path.isdir(cwd):
        message = "the folder %s does not exist" % cwd
    else:
        found = shutil.which(os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0], path=environment.get("PATH"))
        interpreter = shebang(found) if found and number == errno.ENOENT else None
        if interpreter:
            message = "%s asks for the interpreter %s, which is not there" % (found, interpreter)
        elif number == errno.ENOEXEC:
            message = "%s is not a program (no #! line, or built for another machine)" % (found or argv[0])
        elif number == errno.ENOENT and "/" not in argv[0]:
            message = "there is no program %s on PATH %s" % (argv[0], environment.get("PATH"))
        else:
            message = "%s: %s" % (argv[0], getattr(error, "strerror", None) or error)
    return start_error(error, message)


def shebang(path: str) -> str | None:
    try:
        with open(path, "rb") as stream:
            line = stream.read(256).split(b"\n", 1)[0]
    except OSError:
        return None
    words = line[2:].split()
    return os.fsdecode(words[0]) if line.startswith(b"#!") and words else None


def how_it_ended(record: Dict[str, Any]) -> str:
    seconds = int(record["ended_at"] - record["started_at"])
    took = "after %d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    if record["exit_code"] is not None:
        return "ended with exit code %d %s" % (record["exit_code"], took)
    return "killed by signal %d %s" % (record["signal"], took)


def _stderr_to(path: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(handle, 2)
    os.close(handle)
