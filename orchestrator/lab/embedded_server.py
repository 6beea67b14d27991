"""The embedded lab's SSH server: asyncssh on loopback, running commands as OpenSSH's sshd would.

Rule: it hands bytes, signals and ends through, untouched; a lost client ends nothing but its own streams.
Run as `python -m orchestrator.lab.embedded_server <lab's folder>`; says its port on stdout once it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pwd
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from orchestrator.lab.doubles.container import set_mark

CHUNK = 65536
ACCEPTED_VARIABLES = ("LANG", "LC_")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Settings:
    """What the lab wrote for its server (server.json)."""

    folder: Path
    port: int
    """0: any free one."""
    mark: int

    @classmethod
    def read(cls, folder: Path) -> Settings:
        raw = json.loads((folder / "server.json").read_text())
        return cls(folder, raw["port"], raw["mark"])


class OneUser(asyncssh.SSHServer):
    """Lets in the user that the lab belongs to, with the lab's key."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username != pwd.getpwuid(os.getuid()).pw_name:
            self._connection.set_authorized_keys(asyncssh.import_authorized_keys(""))
        return True


def login_shell() -> str:
    shell = pwd.getpwuid(os.getuid()).pw_shell
    return "/bin/sh" if not shell or shell.endswith(("nologin", "false")) else shell


def session_environment(settings: Settings, process: asyncssh.SSHServerProcess[bytes]) -> dict[str, str]:
    account = pwd.getpwuid(os.getuid())
    client = process.get_extra_info("peername")
    here = process.get_extra_info("sockname")
    accepted = {key: value for key, value in process.env.items() if key.startswith(ACCEPTED_VARIABLES)}
    environment = {
        **accepted,
        "HOME": str(settings.folder / "home"),
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": login_shell(),
        "PATH": f"{settings.folder}/bin:{SYSTEM_PATH}",
        "SSH_CLIENT": f"{client[0]} {client[1]} {here[1]}",
        "SSH_CONNECTION": f"{client[0]} {client[1]} {here[0]} {here[1]}",
    }
    if process.term_type:
        environment["TERM"] = process.term_type
    return environment


def command_argv(command: str | None) -> list[str]:
    shell = login_shell()
    return [shell, "-c", command] if command is not None else [shell, "-i"]


def set_window(descriptor: int, size: tuple[int, int, int, int]) -> None:
    columns, rows, width, height = size
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))


async def serve_session(settings: Settings, process: asyncssh.SSHServerProcess[bytes]) -> None:
    """One command or shell, from its start to its end."""
    environment = session_environment(settings, process)
    argv = command_argv(process.command)
    if process.term_type:
        child, ours, outputs = start_on_terminal(argv, environment, process.term_size)
    else:
        child, ours, outputs = start_on_pipes(argv, environment)
    feeding = asyncio.create_task(feed(process, child, ours, terminal=bool(process.term_type)))
    writers = [process.stdout, process.stderr]
    pumps = [asyncio.create_task(pump(fd, writer)) for fd, writer in zip(outputs, writers, strict=False)]
    # Like sshd: what the command (or a child of it) still holds open is read to its end, unless the client is gone.
    ended = asyncio.ensure_future(end_of(child, pumps))
    gone = asyncio.ensure_future(process.wait_closed())
    await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
    for task in (feeding, *pumps):
        task.cancel()
    await asyncio.gather(feeding, *pumps, return_exceptions=True)
    code = await ended
    gone.cancel()
    if code < 0:
        process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        process.exit(code)


async def end_of(child: subprocess.Popen[bytes], pumps: Sequence[asyncio.Task[None]]) -> int:
    code = await exit_of(child)
    await asyncio.wait(pumps)
    return code


def start_on_pipes(argv: list[str], environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], int, list[int]]:
    child = subprocess.Popen(
        argv, env=environment, cwd=environment["HOME"], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin and child.stdout and child.stderr
    descriptors = [os.dup(stream.fileno()) for stream in (child.stdin, child.stdout, child.stderr)]
    for stream in (child.stdin, child.stdout, child.stderr):
        stream.close()
    return child, descriptors[0], descriptors[1:]


def start_on_terminal(
    argv: list[str], environment: dict[str, str], size: tuple[int, int, int, int]
) -> tuple[subprocess.Popen[bytes], int, list[int]]:
    ours, theirs = os.openpty()
    set_window(theirs, size)

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        argv, env=environment, cwd=environment["HOME"], start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(theirs)
    return child, ours, [os.dup(ours)]


async def exit_of(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; minus the signal's number if one ended it."""
    handle = os.pidfd_open(child.pid)
    try:
        await ready(handle, to_write=False)
    finally:
        os.close(handle)
    return child.wait()


async def ready(descriptor: int, *, to_write: bool) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiting.done():
            waiting.set_result(None)

    if to_write:
        loop.add_writer(descriptor, wake)
    else:
        loop.add_reader(descriptor, wake)
    try:
        await waiting
    finally:
        if to_write:
            loop.remove_writer(descriptor)
        else:
            loop.remove_reader(descriptor)


async def pump(descriptor: int, writer: asyncssh.SSHWriter[bytes]) -> None:
    """From the command to the client until the command's end of it closes, or the client is gone."""
    try:
        while True:
            await ready(descriptor, to_write=False)
            try:
                data = os.read(descriptor, CHUNK)
            except OSError:  # a terminal nobody holds any more
                break
            if not data:
                break
            writer.write(data)
            await writer.drain()
    except (OSError, asyncssh.Error):
        pass
    finally:
        os.close(descriptor)


async def feed(
    process: asyncssh.SSHServerProcess[bytes], child: subprocess.Popen[bytes], descriptor: int, *, terminal: bool
) -> None:
    """From the client to the command: bytes, the end of them, signals, the window's size."""
    os.set_blocking(descriptor, False)
    try:
        while True:
            try:
                data = await process.stdin.read(CHUNK)
            except asyncssh.TerminalSizeChanged as change:
                set_window(descriptor, change.term_size)
                continue
            except asyncssh.SignalReceived as received:
                send_signal(child, received.signal)
                continue
            except asyncssh.BreakReceived:
                continue
            if not data:
                break
            await write_all(descriptor, data)
        if terminal and not process.channel.is_closing():
            await write_all(descriptor, b"\x04")
            await asyncio.get_running_loop().create_future()  # hanging up would end the shell before its last words
    except (OSError, asyncssh.Error):
        pass
    finally:
        os.close(descriptor)


async def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        await ready(descriptor, to_write=True)
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            continue


def send_signal(child: subprocess.Popen[bytes], name: str) -> None:
    number = getattr(signal, f"SIG{name}", None)
    if number is not None and child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


async def serve(settings: Settings) -> None:
    async def session(process: asyncssh.SSHServerProcess[bytes]) -> None:
        try:
            await serve_session(settings, process)
        except (OSError, asyncssh.Error) as error:
            sys.stderr.write(f"session: {error!r}\n")
            sys.stderr.flush()

    server = await asyncssh.listen(
        "127.0.0.1", settings.port, server_factory=OneUser, process_factory=session,
        server_host_keys=[str(settings.folder / "host_key")], encoding=None, line_editor=False,
        authorized_client_keys=str(settings.folder / "authorized_keys"), sftp_factory=True,
        agent_forwarding=False, reuse_address=True,
    )  # fmt: skip
    sys.stdout.write(f"{server.get_port()}\n")
    sys.stdout.flush()
    os.dup2(2, 1)  # stdout was the maker's pipe
    await server.wait_closed()


def main() -> int:
    settings = Settings.read(Path(sys.argv[1]))
    set_mark(settings.mark)
    asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
