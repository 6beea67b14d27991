"""Runs argv lists, each with its own deadline, all at once; a hung one delays nobody but itself.

Rule: every command is its own process group (and session), and is killed as one; outputs are bounded; a
command that did not end has exit_code None. The answers come in the order of the questions.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time

from .channel import Channel
from .errors import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Set

OUTPUT_LIMIT_BYTES = 256 * 1024
MAX_COMMANDS = 64
AFTER_EXIT_S = 0.3
"""How long to go on reading what a background child may still write once the command itself has ended."""
CANCEL_POLL_S = 0.1

_running: Set[int] = set()
_running_lock = threading.Lock()


def run_batch(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """commands: [{argv, timeout_s, stdin?: str, cwd?: str, environment?: {..} (added), output_limit?: bytes}].

    Answers results: [{exit_code, timed_out, stdout, stderr, truncated, wall_s}]; killed by signal n: 128 + n;
    not found: 127; not executable: 126. Raises OpError.
    """
    commands: List[Dict[str, Any]] = params["commands"]
    if len(commands) > MAX_COMMANDS:
        raise OpError("too_large", "at most %d commands in a batch" % MAX_COMMANDS)
    results: List[Dict[str, Any] | None] = [None] * len(commands)

    def work(index: int) -> None:
        results[index] = run_command(commands[index], channel.cancelled)

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    channel.check()
    return {"results": results}


def run_command(command: Dict[str, Any], cancelled: threading.Event) -> Dict[str, Any]:
    """One entry of run_batch. Does not raise for what the command does."""
    began = time.monotonic()
    try:
        process = _start(command)
    except OSError as error:
        not_started = 126 if isinstance(error, PermissionError) else 127
        return _result(not_started, False, bytearray(), bytearray(str(error), "utf-8", "replace"), False, began)
    try:
        pipes = _Pipes(process, command)
        timed_out = not pipes.pump(began + float(command["timeout_s"]), cancelled)
        if timed_out:
            _kill_group(process.pid)
            pipes.pump(time.monotonic() + 1.0, threading.Event())
        code = process.poll()
        pipes.close()
    finally:
        with _running_lock:
            _running.discard(process.pid)
    if code is not None and code < 0:
        code = 128 - code
    return _result(None if timed_out else code, timed_out, pipes.outputs[0], pipes.outputs[1], pipes.truncated, began)


def kill_all() -> None:
    """At the agent's end: no command outlives it."""
    with _running_lock:
        for pid in _running:
            _kill_group(pid)


def _start(command: Dict[str, Any]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, **command["environment"]) if command.get("environment") else None
    with _running_lock:  # so that kill_all cannot miss one that is just being started
        process = subprocess.Popen(
            [os.fsencode(word) for word in command["argv"]],
            stdin=subprocess.DEVNULL if command.get("stdin") is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.get("cwd"),
            env=environment,
            start_new_session=True,
        )
        _running.add(process.pid)
    return process


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _result(
    code: int | None, timed_out: bool, stdout: bytearray, stderr: bytearray, truncated: bool, began: float
) -> Dict[str, Any]:
    return {
        "exit_code": code,
        "timed_out": timed_out,
        "stdout": stdout.decode("utf-8", "replace"),
        "stderr": stderr.decode("utf-8", "replace"),
        "truncated": truncated,
        "wall_s": round(time.monotonic() - began, 4),
    }


class _Pipes:
    """Feeds stdin and collects stdout and stderr, up to the limit; what is beyond it is read and dropped."""

    def __init__(self, process: subprocess.Popen[bytes], command: Dict[str, Any]) -> None:
        self.outputs = [bytearray(), bytearray()]
        self.truncated = False
        self._process = process
        self._limit = int(command.get("output_limit") or OUTPUT_LIMIT_BYTES)
        self._input = memoryview((command.get("stdin") or "").encode("utf-8", "surrogateescape"))
        self._selector = selectors.DefaultSelector()
        for index, stream in enumerate((process.stdout, process.stderr)):
            assert stream is not None
            self._selector.register(stream, selectors.EVENT_READ, index)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE, None)

    def pump(self, until: float, cancelled: threading.Event) -> bool:
        """True: it ended and its output is complete. False: the time is over, or it was cancelled."""
        exited_at = None
        while True:
            now = time.monotonic()
            if exited_at is None and self._process.poll() is not None:
                exited_at = now
            if exited_at is not None and (not self._selector.get_map() or now > exited_at + AFTER_EXIT_S):
                return True
            if now >= until or cancelled.is_set():
                return exited_at is not None
            if not self._selector.get_map():
                # Its streams are closed but it lives on.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(CANCEL_POLL_S, until - now))
                continue
            for key, _ in self._selector.select(min(CANCEL_POLL_S, until - now)):
                self._move(key)

    def close(self) -> None:
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _move(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._feed(key)
            return
        data = os.read(key.fd, 65536)
        if not data:
            self._selector.unregister(key.fileobj)
            return
        kept = self.outputs[key.data]
        space = self._limit - len(kept)
        kept += data[:space]
        self.truncated = self.truncated or len(data) > space

    def _feed(self, key: selectors.SelectorKey) -> None:
        try:
            if self._input:
                self._input = self._input[os.write(key.fd, self._input) :]
        except BlockingIOError:
            return
        except OSError:
            self._input = self._input[:0]  # it does not want to read: its affair
        if not self._input:
            self._selector.unregister(key.fileobj)
            assert self._process.stdin is not None
            self._process.stdin.close()


def ask(argv: List[str], deadline_s: float) -> tuple[int | None, str, str]:
    """(exit code or None, stdout, stderr or why there is no exit code)."""
    result = run_command({"argv": argv, "timeout_s": deadline_s}, threading.Event())
    if result["timed_out"]:
        return None, result["stdout"], "%s did not answer within %g s" % (argv[0], deadline_s)
    return result["exit_code"], result["stdout"], result["stderr"].strip()
