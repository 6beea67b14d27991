"""The agent's process: reads frames from stdin, runs each request in a thread, writes frames to the old stdout.

Threads: `reader` (parses, dispatches, answers beats), one `op-<id>` a request, and the main one, which only
waits for the end: EOF, a malformed frame, a broken pipe, a signal, or silence (liveness.py).
Rule: nothing but `Server.send` writes to the stream; descriptor 1 is the same as stderr for everybody else.
The end: cancel every request, give them GRACE_S, kill the commands that still run, leave. The lease goes too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

from .channel import Channel
from .errors import Cancelled, OpError
from .framing import FrameDecoder, FrameError, encode_frame
from .identity import facts
from .liveness import Liveness
from .ops import find_op

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

GRACE_S = 2.0
READ_BYTES = 256 * 1024
MAX_REQUESTS = 64

EXIT_OK = 0
EXIT_BROKEN = 3
"""Ended by a malformed frame, silence or a signal; the bootstrap must not try another interpreter."""


class Signalled(BaseException):
    """Raised in the main thread by a signal handler, which may not touch any lock itself."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Server:
    def __init__(self, stdin: int, stdout: int, liveness: Liveness) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._liveness = liveness
        self._writing = threading.Lock()
        self._channels: Dict[int, Channel] = {}
        self._channels_lock = threading.Lock()
        self._ended = threading.Event()
        self._exit_code = EXIT_OK

    def serve(self) -> int:
        """Returns the exit code once everything has been cancelled."""
        self.send({"type": "hello", "data": facts()}, b"")
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        try:
            while not self._ended.is_set():
                left_s = self._liveness.left_s()
                if left_s <= 0:
                    self.end(EXIT_BROKEN, "nothing came from the controller for %g s: ending" % self._liveness.limit_s)
                self._ended.wait(max(0.0, left_s))
        except Signalled as signalled:
            self.end(EXIT_BROKEN, "ended by signal %d" % signalled.number)
        self._cancel_all()
        return self._exit_code

    def end(self, code: int, why: str) -> None:
        if not self._ended.is_set():
            self._exit_code = code
            if why:
                with contextlib.suppress(OSError):
                    sys.stderr.write("orch agent: %s\n" % why)
                    sys.stderr.flush()
            self._ended.set()

    def send(self, header: Dict[str, Any], body: bytes) -> None:
        """Raises Cancelled when the stream is gone."""
        view = memoryview(encode_frame(header, body))
        try:
            with self._writing:
                while view:
                    view = view[os.write(self._stdout, view) :]
        except OSError as error:
            self.end(EXIT_OK, "")
            raise Cancelled() from error

    def _read(self) -> None:
        decoder = FrameDecoder()
        try:
            while not self._ended.is_set():
                data = os.read(self._stdin, READ_BYTES)
                if not data:
                    break
                self._liveness.touch()
                for header, body in decoder.feed(data):
                    self._dispatch(header, body)
            self.end(EXIT_OK, "")
        except FrameError as error:
            self.end(EXIT_BROKEN, "malformed frame: %s" % error)
        except (OSError, Cancelled):
            self.end(EXIT_OK, "")

    def _dispatch(self, header: Dict[str, Any], body: bytes) -> None:
        kind = header.get("type")
        if kind == "beat":
            self.send({"type": "beat"}, b"")
            return
        request_id = header.get("id")
        if not isinstance(request_id, int):
            raise FrameError("a frame without an id: %r" % str(header)[:80])
        if kind == "request":
            self._start(request_id, header, body)
            return
        with self._channels_lock:
            channel = self._channels.get(request_id)
        if channel is None:
            return  # it ended while this frame was on its way
        if kind == "data":
            channel.deliver(header.get("data") or {}, body)
        elif kind == "taken":
            channel.add_room(int(header.get("bytes") or 0))
        elif kind == "cancel":
            channel.cancel()
        else:
            raise FrameError("a frame of unknown type %r" % kind)

    def _start(self, request_id: int, header: Dict[str, Any], body: bytes) -> None:
        channel = Channel(request_id, self.send)
        with self._channels_lock:
            if request_id in self._channels:
                raise FrameError("request id %d is in use" % request_id)
            busy = len(self._channels) >= MAX_REQUESTS
            if not busy:
                self._channels[request_id] = channel
        if busy:
            self._fail(request_id, OpError("overloaded", "%d requests run already" % MAX_REQUESTS))
            return
        name = "op-%d" % request_id
        threading.Thread(target=self._run, args=(channel, header, body), name=name, daemon=True).start()

    def _run(self, channel: Channel, header: Dict[str, Any], body: bytes) -> None:
        try:
            answer = find_op(str(header.get("op")))(header.get("params") or {}, body, channel)
            data, answer_body = answer if isinstance(answer, tuple) else (answer, b"")
            self.send({"id": channel.request_id, "type": "reply", "data": data}, answer_body)
        except Cancelled:
            self._fail(channel.request_id, OpError("cancelled", "the request was cancelled"))
        except OpError as error:
            self._fail(channel.request_id, error)
        except FrameError as error:
            self._fail(channel.request_id, OpError("too_large", str(error)))
        except OSError as error:
            # A full, read-only or forbidden place: the target's matter, not a mistake of ours.
            self._fail(channel.request_id, OpError("io", "%s: %s" % (error.filename or "input/output", error.strerror)))
        except Exception as error:
            import traceback  # costs milliseconds at start, and is needed only here

            message = "%s in the agent: %s" % (type(error).__name__, error)
            self._fail(channel.request_id, OpError("bug", message, traceback.format_exc()))
        finally:
            with self._channels_lock:
                self._channels.pop(channel.request_id, None)

    def _fail(self, request_id: int, error: OpError) -> None:
        told = {"kind": error.kind, "message": error.message, "evidence": error.evidence[-65536:]}
        with contextlib.suppress(Cancelled):
            self.send({"id": request_id, "type": "error", "error": told}, b"")

    def _cancel_all(self) -> None:
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            with self._channels_lock:
                running = list(self._channels.values())
            if not running:
                return
            for channel in running:
                channel.cancel()
            time.sleep(0.01)


def take_over_streams() -> tuple[int, int]:
    """Private copies of stdin and stdout; 0 becomes /dev/null and 1 becomes stderr, for children and for `print`."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    os.set_blocking(stdin, True)
    os.set_blocking(stdout, True)
    return stdin, stdout


ENDING_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


def raise_signalled(number: int, frame: Any) -> None:
    for other in ENDING_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise Signalled(number)


def main() -> None:
    """Never returns."""
    stdin, stdout = take_over_streams()
    server = Server(stdin, stdout, Liveness())
    for number in ENDING_SIGNALS:
        signal.signal(number, raise_signalled)
    try:
        code = server.serve()
    except (Cancelled, Signalled):
        code = EXIT_BROKEN
    commands = sys.modules.get((__package__ or "") + ".commands")
    if commands is not None:
        commands.kill_all()
    # Not sys.exit: a thread that hangs in a dead file system must not keep the lease.
    os._exit(code)
