"""Every combination of transport, container kind and become that one contract is held over."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.container.target import ContainerTransport, open_target
from orchestrator.inventory.model import Target
from tests.contract.ssh_server import SSHD, SshServer

PCT_SOURCE = Path(__file__).resolve().parent / "doubles" / "pct.sh"

SUDO = """#!/bin/sh
# Stands for a sudo that keeps the caller's PATH, which finds the double of pct.
[ "$1 $2" = "-n --" ] || { echo "sudo double: unexpected words: $*" >&2; exit 99; }
shift 2
exec "$@"
"""

TRANSPORTS = ["local", *(["openssh", "asyncssh"] if Path(SSHD).exists() else [])]
COMBINATIONS = [
    (transport, kind, become)
    for transport in TRANSPORTS
    for kind, become in [("none", "none"), ("none", "sudo"), ("pct", "none"), ("pct", "sudo")]
    if not (kind == "none" and become == "sudo" and (os.getuid() != 0 or not shutil.which("sudo")))
]


class Doubles:
    """`pct` and one container 200; a `sudo` that finds it; in a folder to be put on PATH."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        self.config = folder / "200.conf"
        self.running = folder / "200.running"
        self.starts = folder / "starts"
        for file in (self.config, self.running, self.starts):
            file.touch()
        self._program("pct", PCT_SOURCE.read_text().replace("@STATE@", str(folder)))
        self._program("sudo", SUDO)

    def _program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def pct_starts(self) -> int:
        return len(self.starts.read_text().splitlines())


@dataclass
class Place:
    """One combination, opened; `do` runs a coroutine on its event loop."""

    server: SshServer | None
    doubles: Doubles
    target: Target
    runner: asyncio.Runner
    transport: ContainerTransport

    def do(self, work):
        return self.runner.run(work)

    def run(self, argv, *, stdin=b"", timeout_s=30.0):
        return self.do(self.transport.run(argv, stdin=stdin, timeout_s=timeout_s))


def make_target(host, kind: str, become: str) -> Target:
    return Target(
        name="ct200",
        host=replace(host, become=become),
        kind=kind,
        container_id=200 if kind == "pct" else None,
        root="/root",
        python=None,
        payload=None,
    )


class Stage:
    """Builds places below one short folder and takes them down."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orch-t-", dir="/tmp"))
        self._opened: list[Place] = []
        self._servers: list[SshServer] = []

    def server(self, name: str = "server", **changes: object) -> SshServer:
        server = SshServer(self.folder / name, **changes)
        self._servers.append(server)
        return server

    def place(self, transport: str, kind: str = "none", become: str = "none", *, lines=(), **changes) -> Place:
        """lines: further sshd_config lines; changes: of the host."""
        number = len(self._opened)
        doubles = Doubles(self.folder / f"doubles{number}")
        path = os.environ["PATH"]
        if kind == "pct":
            path = f"{doubles.programs}:{path}"
        server = self.server(f"server{number}")
        # SHLVL: root's own rc file, whatever it is, is not read; noise is added where a test wants it.
        server.set_server(f'SetEnv PATH="{path}" SHLVL=3', *lines)
        if transport == "local":
            os.environ["PATH"] = path
        target = make_target(server.host(transport, **changes), kind, become)
        runner = asyncio.Runner()
        place = Place(server, doubles, target, runner, runner.run(open_target(target)))
        self._opened.append(place)
        return place

    def end(self) -> None:
        for place in self._opened:
            place.do(place.transport.close())
            place.runner.close()
        for server in self._servers:
            server.signal_connections(signal.SIGCONT)
            server.end()
        # A shared connection that has just ended takes its socket away by itself, and may do so now.
        shutil.rmtree(self.folder, ignore_errors=True)
