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


class ChildProcess:
    """In a session of its own: a Ctrl-C on the terminal reaches orch, and orch decides."""

    def __init__(self, process: asyncio.subprocess.Process, *, whole_group: bool) -> None:
        self._process = process
        self._whole_group = whole_group
        self.pid = process.pid

    @classmethod
    async def spawn(cls, argv: Sequence[str], *, whole_group: bool) -> ChildProcess:
        """whole_group: abort ends what it started, too. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=READ_BUFFER_BYTES,
            start_new_session=True,
        )
        return cls(process, whole_group=whole_group)

    async def write(self, data: bytes) -> None:
        """Raises OSError when it no longer reads."""
        stdin = self._process.stdin
        assert stdin is not None
        for start in range(0, len(data), WRITE_SLICE_BYTES):
            stdin.write(memoryview(data)[start : start + WRITE_SLICE_BYTES])
            await stdin.drain()

    async def write_eof(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def read(self, limit: int = 65536) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(limit)

    async def read_stderr(self, limit: int = 65536) -> bytes:
        assert self._process.stderr is not None
        return await self._process.stderr.read(limit)

    async def wait(self) -> ExitStatus:
        code = await self._process.wait()
        return ExitStatus(code if code >= 0 else 128 - code)

    async def abort(self) -> None:
        if self._process.returncode is None:
            try:
                self._signal(signal.SIGTERM)
                await self._ended()
            finally:
                # Also when this wait was cancelled: nothing may stay behind.
                self._signal(signal.SIGKILL)
                # Before its pipes are closed: closing them would reap it behind asyncio's back.
                await self._ended()
        self._close_pipes()

    async def _ended(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), END_LIMIT_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._whole_group:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def _close_pipes(self) -> None:
        # A grandchild that keeps our pipes open must not keep the transport open; asyncio has no public way.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()
