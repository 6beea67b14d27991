"""The `ssh` program as a transport: every feature of ssh_config, one shared connection that outlives a command.

Rule: ssh's exit code alone proves nothing. Without the start marker nothing ran, and the text says why;
a 255 without the second marker is a lost link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from orchestrator.errors import OrchError, UnreachableError
from orchestrator.inventory.model import Host
from orchestrator.transport.child import ChildProcess
from orchestrator.transport.failures import describe, failure_error, is_stale_master, shell_refused
from orchestrator.transport.marker import MarkedProcess, guarded, link_lost, new_marker
from orchestrator.transport.protocol import RemoteProcess
from orchestrator.transport.runtime_folder import keep_settings
from orchestrator.transport.ssh_settings import check_address, far_command, ssh_argv
from orchestrator.transport.tracing import Trace, no_trace

SHELL_START_LIMIT_S = 30.0
"""Beyond the connection's own limit: for a slow login and a slow rc file."""


class OpensshTransport:
    """Connects at the first `start`."""

    def __init__(self, host: Host, *, trace: Trace | None = None) -> None:
        check_address(host)
        self._host = host
        self._trace = trace or no_trace
        self._settings = keep_settings(host)
        self._control_path = self._settings.parent / f"{self._settings.stem[:8]}%C"

    @property
    def label(self) -> str:
        return self._host.login

    async def start(self, argv: Sequence[str]) -> RemoteProcess:
        process, text, code = await self._try(argv)
        if process is None and is_stale_master(text):
            process, text, code = await self._try(argv)  # nothing was executed: no session was opened
        if process is None:
            raise await self._error(text, code)
        return process

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        command = ssh_argv(self._host, self._settings, control_path=self._control_path, interactive=True)
        return [*command, far_command(argv)]

    async def close(self) -> None:
        """The shared connection stays for the next command; ssh ends it when it was idle for a minute."""

    async def end_shared_connection(self) -> None:
        """End it now. Commands that still run over it are cut."""
        command = ssh_argv(self._host, self._settings, control_path=self._control_path, options=["LogLevel=QUIET"])
        command[1:1] = ["-O", "exit"]
        child = await ChildProcess.spawn(command, carrier=True)
        try:
            await child.wait()
        finally:
            await child.abort()

    async def _try(self, argv: Sequence[str]) -> tuple[RemoteProcess | None, str, int]:
        """A started process, or ssh's text and exit code."""
        marker = new_marker()
        command = ssh_argv(self._host, self._settings, control_path=self._control_path, options=["LogLevel=ERROR"])
        command.append(far_command(guarded(marker, argv)))
        self._trace(self.label, command)
        child = await self._spawn(command)
        process = MarkedProcess(child, marker, label=self.label, is_guarded=True)
        limit_s = self._host.connect_timeout_s + SHELL_START_LIMIT_S
        try:
            async with asyncio.timeout(limit_s):
                if await process.began():
                    return process, "", 0
                status = await child.wait()
        except TimeoutError as error:
            await child.abort()
            raise UnreachableError(
                f"{self.label}: no command could be started within {limit_s:g} s", evidence=process.noise_text()
            ) from error
        except BaseException:
            await child.abort()
            raise
        await child.abort()
        return None, process.noise_text(), status.code

    async def _spawn(self, command: Sequence[str]) -> ChildProcess:
        try:
            return await ChildProcess.spawn(command, carrier=True)
        except FileNotFoundError as error:
            raise OrchError(
                "the program `ssh` is not here", way_out="install OpenSSH's client, or set `transport: asyncssh`"
            ) from error
        except OSError as error:
            raise UnreachableError(f"{self.label}: ssh could not be started", evidence=str(error)) from error

    async def _error(self, text: str, code: int) -> OrchError:
        if code != 255:
            return shell_refused(self.label, code, text)
        failure = describe(text)
        if failure.kind == "closed_early":
            # A shared connection hides what its ProxyCommand or jump host said: ask again without one.
            text = await self._ask_again() or text
            failure = describe(text)
        if failure.kind in ("lost", "unknown"):
            return link_lost(self.label, text)  # no word of ssh says that it stopped before the login
        hop = await self._hop(failure.facts.get("host"))
        return failure_error(failure, self._host, evidence=text, hop=hop)

    async def _ask_again(self) -> str:
        command = ssh_argv(self._host, self._settings, control_path=None, options=["LogLevel=VERBOSE"])
        code, _, stderr = await self._ask([*command, "exit"])
        return stderr if code == 255 else ""

    async def _hop(self, named: str | None) -> str | None:
        """The host that ssh named, if it is not the one we asked for but one on the way."""
        if named is None:
            return None
        command = ssh_argv(self._host, self._settings, control_path=None)
        _, stdout, _ = await self._ask([*command[:-2], "-G", *command[-2:]])
        resolved = dict(line.split(" ", 1) for line in stdout.splitlines() if " " in line)
        address = resolved.get("hostname", self._host.address)
        ours = {self._host.address, address, f"[{address}]:{resolved.get('port', '22')}"}
        ours.add(resolved.get("hostkeyalias", address))
        on_the_way = "proxyjump" in resolved or "proxycommand" in resolved
        return named if on_the_way and named.lower() not in {name.lower() for name in ours} else None

    async def _ask(self, command: Sequence[str]) -> tuple[int, str, str]:
        self._trace(self.label, command)
        child = await self._spawn(command)
        try:
            async with asyncio.timeout(self._host.connect_timeout_s + SHELL_START_LIMIT_S):
                await child.write_eof()
                stdout, stderr = await asyncio.gather(_read_all(child.read), _read_all(child.read_stderr))
                status = await child.wait()
        except TimeoutError:
            return -1, "", ""
        finally:
            await child.abort()
        return status.code, stdout, stderr


async def _read_all(read: Callable[[], Awaitable[bytes]]) -> str:
    parts = bytearray()
    while data := await read():
        parts += data
        del parts[:-65536]
    return parts.decode("utf-8", "replace")
