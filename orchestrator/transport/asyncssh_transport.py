"""asyncssh as a transport: one connection in this process, cheap commands, for as long as it is open.

Rule: an exit status that did not arrive is a lost link, never success.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from orchestrator.errors import InventoryError, OrchError, UnreachableError
from orchestrator.inventory.model import Host
from orchestrator.transport.asyncssh_options import Login, hop_login, host_login
from orchestrator.transport.failures import Kind, SshFailure, describe, failure_error, shell_refused
from orchestrator.transport.known_hosts import recorded_keys
from orchestrator.transport.marker import MarkedProcess, link_lost, marked, new_marker
from orchestrator.transport.openssh import SHELL_START_LIMIT_S, OpensshTransport
from orchestrator.transport.protocol import ExitStatus, RemoteProcess
from orchestrator.transport.ssh_settings import check_address, far_command
from orchestrator.transport.tracing import Trace, no_trace

_WRITE_SLICE_BYTES = 256 * 1024
_CLOSE_LIMIT_S = 0.5


class AsyncsshTransport:
    """Use `connect`; then `close`."""

    def __init__(self, host: Host, connections: list[asyncssh.SSHClientConnection], trace: Trace) -> None:
        self._host = host
        self._connections = connections
        """The way there, the jump hosts first."""
        self._trace = trace

    @classmethod
    async def connect(cls, host: Host, *, trace: Trace | None = None) -> AsyncsshTransport:
        """Raises UnreachableError, HostKeyError, AuthError, InventoryError."""
        check_address(host)
        connections: list[asyncssh.SSHClientConnection] = []
        try:
            async with asyncio.timeout(host.connect_timeout_s):
                login = resolve_login(host)
                await connect_hops(login, host, connections)
                await _connect_one(login, host, connections, hop=None)
        except BaseException as error:
            await close_all(connections)
            if isinstance(error, TimeoutError):
                evidence = f"not connected and logged in within {host.connect_timeout_s:g} s"
                raise failure_error(SshFailure("timed_out"), host, evidence=evidence) from error
            raise
        return cls(host, connections, trace or no_trace)

    @property
    def label(self) -> str:
        return self._host.login

    async def start(self, argv: Sequence[str]) -> RemoteProcess:
        marker = new_marker()
        command = far_command(marked(marker, argv))
        self._trace(self.label, [command])
        limit_s = self._host.connect_timeout_s + SHELL_START_LIMIT_S
        process: MarkedProcess | None = None
        channel: _Channel | None = None
        try:
            async with asyncio.timeout(limit_s):
                channel = _Channel(await self._open(command), self.label)
                process = MarkedProcess(channel, marker, label=self.label)
                if await process.began():
                    return process
                status = await channel.wait()
        except TimeoutError as error:
            await _abort(channel)
            raise UnreachableError(
                f"{self.label}: no command could be started within {limit_s:g} s", evidence=_noise(process)
            ) from error
        except BaseException:
            await _abort(channel)
            raise
        await channel.abort()
        raise shell_refused(self.label, status.code, _noise(process))

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return OpensshTransport(self._host, trace=self._trace).interactive_argv(argv)

    async def close(self) -> None:
        await close_all(self._connections)

    async def _open(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        try:
            return await self._connections[-1].create_process(command, encoding=None, request_pty=False)
        except (asyncssh.Error, OSError) as error:
            raise UnreachableError(
                f"{self.label}: no command could be started: the connection is gone or takes no more sessions",
                evidence=str(error),
            ) from error


class _Channel:
    """An asyncssh process as a RemoteProcess."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], label: str) -> None:
        self._process = process
        self._label = label

    async def write(self, data: bytes) -> None:
        stdin = self._process.stdin
        try:
            for start in range(0, len(data), _WRITE_SLICE_BYTES):
                stdin.write(data[start : start + _WRITE_SLICE_BYTES])
                await stdin.drain()
        except asyncssh.Error as error:
            raise BrokenPipeError(str(error)) from error

    async def write_eof(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    async def read(self, limit: int = 65536) -> bytes:
        return await _read(self._process.stdout, limit)

    async def read_stderr(self, limit: int = 65536) -> bytes:
        return await _read(self._process.stderr, limit)

    async def wait(self) -> ExitStatus:
        await self._process.wait_closed()
        if self._process.exit_signal is not None:
            return ExitStatus(128 + _signal_number(self._process.exit_signal[0]))
        if self._process.exit_status is None or self._process.exit_status < 0:
            raise link_lost(self._label)
        return ExitStatus(self._process.exit_status)

    async def abort(self) -> None:
        self._process.channel.abort()


async def _read(reader: asyncssh.SSHReader[bytes], limit: int) -> bytes:
    """A lost link ends the stream; `wait` says that it was one."""
    try:
        return await reader.read(limit)
    except (asyncssh.Error, OSError):
        return b""


async def connect_hops(login: Login, host: Host, way: list[asyncssh.SSHClientConnection]) -> None:
    """Appends a connection for every jump host before `login`'s own host. Raises as `connect` does."""
    for index, hop in enumerate(login.hops):
        step = hop_login(hop, Path(login.arguments["config"][0]), host)
        if index == 0:  # the first one may itself be behind another one, as ssh -J has it
            await connect_hops(step, host, way)
        await _connect_one(step, host, way, hop=hop.address)


async def _connect_one(login: Login, host: Host, way: list[asyncssh.SSHClientConnection], *, hop: str | None) -> None:
    arguments = {**login.arguments, "tunnel": way[-1] if way else None}
    if way:
        arguments["proxy_command"] = None
    try:
        way.append(await asyncssh.connect(**arguments))
    except asyncssh.HostKeyNotVerifiable as error:
        raise failure_error(_host_key_failure(login), host, evidence=str(error), hop=hop) from error
    except (asyncssh.Error, OSError, ValueError) as error:
        raise translated(error, host, hop) from error


def resolve_login(host: Host) -> Login:
    """Raises InventoryError for settings that asyncssh cannot read."""
    try:
        return host_login(host)
    except (asyncssh.Error, ValueError) as error:
        raise InventoryError(
            f"{host.login}: the ssh settings cannot be read",
            evidence=str(error),
            way_out="correct them, or set `transport: openssh` for this host",
        ) from error


def _host_key_failure(login: Login) -> SshFailure:
    plain, revoked = recorded_keys(login.arguments["known_hosts"], login.options)
    if revoked:
        return SshFailure("host_key_revoked")
    return SshFailure("host_key_changed" if plain else "host_key_unknown")


def translated(error: Exception, host: Host, hop: str | None) -> OrchError:
    """What a foreign exception of a connection attempt means; hop: the jump host it came from."""
    kind: Kind
    if isinstance(error, TimeoutError):
        kind = "timed_out"
    elif isinstance(error, socket.gaierror):
        kind = "name_not_found"
    elif isinstance(error, ConnectionRefusedError):
        kind = "refused"
    elif "Too many authentication failures" in str(error):
        kind = "auth_too_many_keys"
    elif isinstance(error, asyncssh.PermissionDenied):
        kind = "auth_denied"
    elif isinstance(error, asyncssh.KeyExchangeFailed):
        kind = "no_common_algorithm"
    elif isinstance(error, asyncssh.ConnectionLost | asyncssh.ProtocolError | ConnectionError):
        kind = "closed_early"
    else:
        kind = describe(str(error)).kind
    return failure_error(SshFailure(kind), host, evidence=f"{type(error).__name__}: {error}", hop=hop)


def _signal_number(name: str) -> int:
    try:
        return signal.Signals[f"SIG{name}"].value
    except KeyError:
        return 127  # a signal that this machine does not know: 255, still a failure


async def close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    for connection in reversed(connections):
        connection.close()
        try:
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort()
        except (asyncssh.Error, OSError):
            pass


async def _abort(channel: _Channel | None) -> None:
    if channel is not None:
        await channel.abort()


def _noise(process: MarkedProcess | None) -> str:
    return process.noise_text() if process else ""
