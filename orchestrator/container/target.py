"""A container is a transport inside a transport.

Rule: `start` returns only what the far side has proved to run inside; `run` ends with a result, or says what is
not known. One `start` is one start of the kind's program on the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from orchestrator.container.config import config_file, parse_config
from orchestrator.container.kinds import KINDS
from orchestrator.container.place import Place
from orchestrator.errors import DeadlineError, OrchError
from orchestrator.inventory.model import ContainerKind, Host, Target
from orchestrator.transport.connect import connect
from orchestrator.transport.marker import MarkedProcess, marked, new_marker
from orchestrator.transport.protocol import Completed, RemoteProcess, Transport
from orchestrator.transport.ssh_settings import typed_login
from orchestrator.transport.tracing import Trace

INSIDE_START_LIMIT_S = 60.0
"""From the host's shell to the first word from inside: a loaded host starts pct slowly."""
CONFIG_LIMIT_S = 10.0


class ContainerTransport:
    """Use `open_target` or `open_host`; then `close`."""

    def __init__(self, transport: Transport, kind: ContainerKind, place: Place) -> None:
        self.label = place.label
        self._transport = transport
        self._kind_name = kind
        self._kind = KINDS[kind]
        self._place = place

    async def start(self, argv: Sequence[str]) -> RemoteProcess:
        """Raises ContainerError, AuthError, UnreachableError, HostKeyError, OutcomeUnknownError, DeadlineError."""
        marker = new_marker()
        outer = await self._transport.start(self._kind.start_argv(self._place, marked(marker, argv)))
        process = MarkedProcess(outer, marker, label=self.label)
        try:
            async with asyncio.timeout(INSIDE_START_LIMIT_S):
                if await process.began():
                    return process
                status = await outer.wait()  # raises when the link was lost
        except TimeoutError as error:
            await outer.abort()
            raise DeadlineError(
                f"{self.label}: nothing began within {INSIDE_START_LIMIT_S:g} s; it may still begin there",
                evidence=process.noise_text(),
            ) from error
        except BaseException:
            await outer.abort()
            raise
        await outer.abort()
        raise self._kind.start_error(self._place, process.noise_text(), status.code)

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Raises DeadlineError, OutcomeUnknownError, and what `start` raises. stdout and stderr are kept whole."""
        process: RemoteProcess | None = None
        try:
            async with asyncio.timeout(timeout_s):
                process = await self.start(argv)
                return await _complete(process, argv, stdin)
        except TimeoutError as error:
            begun = "it may still run there" if process else "it was not seen to begin"
            raise DeadlineError(
                f"{self.label}: {argv[0]} did not end within {timeout_s:g} s; {begun}",
                evidence=" ".join(argv)[:500],
            ) from error
        finally:
            if process is not None:
                await process.abort()

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        """A local command line that runs argv inside on the caller's terminal."""
        term = os.environ.get("TERM", "xterm")
        return self._transport.interactive_argv(self._kind.interactive_argv(self._place, argv, term=term))

    def on_host(self) -> ContainerTransport:
        """The host itself over the same connection; closed with this one."""
        place = replace(self._place, label=f"the host of {self._place.label}", container_id=None)
        return ContainerTransport(self._transport, "none", place)

    async def container_config(self) -> dict[str, str] | None:
        """As the host's file has it, read with the login's own rights. {}: no container; None: it cannot be read."""
        file = config_file(self._kind_name, self._place.container_id)
        if file is None:
            return {} if self._kind_name == "none" else None
        # Not through sudo: where that may do only `pct`, a refusal is reported to the administrator.
        place = replace(self._place, label=f"the host of {self._place.label}", container_id=None, become="none")
        host = ContainerTransport(self._transport, "none", place)
        try:
            done = await host.run(["cat", file], timeout_s=CONFIG_LIMIT_S)
        except (OrchError, OSError):
            return None
        return parse_config(done.stdout.decode("utf-8", "replace")) if done.exit_code == 0 else None

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> ContainerTransport:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def open_target(target: Target, *, trace: Trace | None = None) -> ContainerTransport:
    """Raises what the transport's `connect` raises; the container itself is asked at the first `start`."""
    place = _place(target.host, target.label, target.container_id)
    return ContainerTransport(await connect(target.host, trace=trace), target.kind, place)


async def open_host(host: Host) -> ContainerTransport:
    """The host itself, whatever containers it has."""
    transport = await connect(host)
    return ContainerTransport(transport, "none", _place(host, f"{host.name} ({transport.label})", None))


def _place(host: Host, label: str, container_id: int | None) -> Place:
    login = "" if host.transport == "local" else typed_login(host)
    return Place(label, login, host.user, host.become, container_id)


async def _complete(process: RemoteProcess, argv: Sequence[str], stdin: bytes) -> Completed:
    writer = asyncio.create_task(_feed(process, stdin))
    try:
        stdout, stderr = await asyncio.gather(_read_all(process.read), _read_all(process.read_stderr))
        status = await process.wait()
    finally:
        writer.cancel()  # a command may end, or close its stdin, before it has read all
        await asyncio.gather(writer, return_exceptions=True)
    return Completed(tuple(argv), status.code, stdout, stderr)


async def _feed(process: RemoteProcess, data: bytes) -> None:
    with contextlib.suppress(OSError):
        await process.write(data)
        await process.write_eof()


async def _read_all(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    parts = bytearray()
    while data := await read(1 << 18):
        parts += data
    return bytes(parts)
