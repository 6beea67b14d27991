"""Our own streams as bytes: stdin in chunks, without ever keeping the program from ending; a stream to write to."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

from orchestrator.cli.output import unwritable

CHUNK_BYTES = 65536


async def stdin_chunks() -> AsyncIterator[bytes]:
    """Chunks of stdin until its end.

    A daemon thread reads, since a regular file or a blocking pipe cannot be polled; the queue of two chunks holds
    it back when the far side is slow.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=2)
    descriptor = sys.stdin.fileno()

    def read_on() -> None:
        while True:
            chunk = os.read(descriptor, CHUNK_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop is gone: nobody listens any more
            if not chunk:
                return

    threading.Thread(target=read_on, name="stdin", daemon=True).start()
    while chunk := await queue.get():
        yield chunk


def write_to(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(chunk: bytes) -> None:
        try:
            stream.write(chunk)
            stream.flush()
        except OSError as error:
            raise unwritable(error) from error

    return write
