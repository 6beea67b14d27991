"""A process on this machine as a RemoteProcess.

Rule: whoever spawns one waits for it or aborts it; after either nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from orchestrator.transport.protocol import ExitStatus

WRITE_SLICE_BYTES = 256 * 1024
READ_BUFFER_BYTES = 256 * 1024
END_LIMIT_S = 2.0
"""From SIGTERM to SIGKILL."""


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """asyncio's own `wait` ends only when the pipes do, and a grandchild may keep those open."""

    def __init__(self) -> None:
        super().__init__(limit=READ_BUFFER_BYTES, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()
        super().process_exited()


class ChildProcess:
    """In a session of its own: a Ctrl-C on the terminal reaches orch, and orch decides."""

    def __init__(self, transport: asyncio.SubprocessTransport, streams: _Streams, *, carrier: bool) -> None:
        assert streams.stdin is not None and streams.stdout is not None and streams.stderr is not None
        self._transport = transport
        self._exited = streams.exited
        self._stdin, self._stdout, self._stderr = streams.stdin, streams.stdout, streams.stderr
        self._carrier = carrier
        self.pid = transport.get_pid()

    @classmethod
    async def spawn(cls, argv: Sequence[str], *, carrier: bool) -> ChildProcess:
        """carrier: it only carries bytes, as ssh does, and abort kills it alone (a shared connection's ProxyCommand
        is in its group). Otherwise it is the work itself: abort asks it to end, then ends all that it started.
        Raises OSError."""
        transport, streams = await asyncio.get_running_loop().subprocess_exec(
            _Streams,
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(transport, streams, carrier=carrier)

    async def write(self, data: bytes) -> None:
        """Raises OSError when it no longer reads."""
        for start in range(0, len(data), WRITE_SLICE_BYTES):
            self._stdin.write(memoryview(data)[start : start + WRITE_SLICE_BYTES])
            await self._stdin.drain()

    async def write_eof(self) -> None:
        self._stdin.close()

    async def read(self, limit: int = 65536) -> bytes:
        return await self._stdout.read(limit)

    async def read_stderr(self, limit: int = 65536) -> bytes:
        return await self._stderr.read(limit)

    async def wait(self) -> ExitStatus:
        await self._exited.wait()
        code = self._transport.get_returncode()
        assert code is not None
        return ExitStatus(code if code >= 0 else 128 - code)

    async def abort(self) -> None:
        if not self._exited.is_set():
            try:
                if not self._carrier:
                    self._signal(signal.SIGTERM)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._exited.wait(), END_LIMIT_S)
            finally:
                # Also when this wait was cancelled: nothing may stay behind.
                self._signal(signal.SIGKILL)
                # Before its pipes are closed: closing them would reap it behind asyncio's back.
                await self._exited.wait()
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._carrier:
                self._transport.send_signal(number)
            else:
                os.killpg(self.pid, number)
