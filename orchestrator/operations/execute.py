"""One command on the target, streams passed through as they are. No agent: it works without python over there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from orchestrator.container.target import open_target
from orchestrator.errors import DeadlineError
from orchestrator.inventory.model import Target
from orchestrator.transport.protocol import RemoteProcess
from orchestrator.transport.tracing import Trace

Sink = Callable[[bytes], None]


async def execute(
    target: Target,
    argv: Sequence[str],
    *,
    stdin: AsyncIterator[bytes] | None,
    on_stdout: Sink,
    on_stderr: Sink,
    timeout_s: float | None = None,
    trace: Trace | None = None,
) -> int:
    """The command's own exit code. Raises DeadlineError (it may go on over there), and what connecting raises."""
    transport = await open_target(target, trace=trace)
    try:
        process = await transport.start(argv)
        try:
            async with asyncio.timeout(timeout_s):
                return await _pump(process, stdin, on_stdout, on_stderr)
        except TimeoutError as error:
            raise DeadlineError(
                f"the command on {target.name} took longer than {timeout_s:g} s",
                evidence="it was not ended: nothing over there hears of a closed connection",
                way_out="look with `orch exec -- ps aux`",
            ) from error
        finally:
            await process.abort()
    finally:
        await transport.close()


async def _pump(process: RemoteProcess, stdin: AsyncIterator[bytes] | None, on_stdout: Sink, on_stderr: Sink) -> int:
    feeding = asyncio.create_task(_feed(process, stdin))
    try:
        await asyncio.gather(_drain(process.read, on_stdout), _drain(process.read_stderr, on_stderr))
        return (await process.wait()).code
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(process: RemoteProcess, stdin: AsyncIterator[bytes] | None) -> None:
    try:
        if stdin is not None:
            async for chunk in stdin:
                await process.write(chunk)
        await process.write_eof()
    except ConnectionError:
        # The command ended, or closed its stdin, without reading all of ours: its exit code is the answer.
        return


async def _drain(read: Callable[[], Awaitable[bytes]], sink: Sink) -> None:
    while chunk := await read():
        sink(chunk)
