"""A real OpenSSH server without a listener: `sshd -i` behind ProxyCommand, one process per connection.

Each server process leads a process group of its own, so that a test can cut or stall exactly one connection.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.inventory.model import Host

SSHD = "/usr/sbin/sshd"


def keygen(*words: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


@dataclass
class SshServer:
    """Keys, settings and client files below `folder`. `alias` is what clients call it."""

    folder: Path
    alias: str = "far"

    def __post_init__(self) -> None:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation wants it
        self.pids.mkdir(parents=True)
        for name in ("host", "client"):
            keygen("-t", "ed25519", "-N", "", "-C", name, "-f", self.folder / name)
        self.authorize(self.public("client"))
        self.known_hosts.write_text(f"{self.alias} {self.public('host')}\n")
        self.set_server()
        self.write_proxy()
        self.set_client()

    @property
    def pids(self) -> Path:
        return self.folder / "pids"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def client_config(self) -> Path:
        return self.folder / "client_config"

    @property
    def proxy(self) -> Path:
        return self.folder / "proxy"

    def public(self, name: str) -> str:
        return " ".join((self.folder / f"{name}.pub").read_text().split()[:2])

    def authorize(self, line: str) -> None:
        (self.folder / "authorized_keys").write_text(line + "\n")

    def set_server(self, *lines: str) -> None:
        text = [
            *lines,
            f"HostKey {self.folder / 'host'}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            "AuthenticationMethods publickey",
            "PubkeyAuthentication yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PidFile none",
            "LogLevel ERROR",
            "AcceptEnv LANG LC_*",
        ]
        (self.folder / "sshd_config").write_text("\n".join(text) + "\n")

    def write_proxy(self) -> None:
        # asyncssh makes its proxy command a group leader, ssh does not; setsid -w suits both.
        self.proxy.write_text(
            f"#!/bin/sh\nexec setsid -w /bin/sh -c 'echo $$ >{self.pids}/$$; "
            f"exec {SSHD} -i -f {self.folder / 'sshd_config'} -E {self.folder / 'sshd.log'}'\n"
        )
        self.proxy.chmod(0o755)

    def set_client(self, *lines: str) -> None:
        text = [
            f"Host {self.alias}",
            *(f"  {line}" for line in lines),
            f"  ProxyCommand {self.proxy}",
            f"  User {getpass.getuser()}",
            f"  IdentityFile {self.folder / 'client'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.known_hosts}",
            "  GlobalKnownHostsFile /dev/null",
        ]
        self.client_config.write_text("\n".join(text) + "\n")

    def host(self, transport: str, **changes: object) -> Host:
        return replace(
            Host(
                name="gpu-box",
                address=self.alias,
                transport=transport,
                user=None,
                port=None,
                identity_file=None,
                ssh_config_file=self.client_config,
                known_hosts_file=None,
                connect_timeout_s=10,
                keepalive_interval_s=15,
                keepalive_count=3,
                become="none",
            ),
            **changes,
        )

    def alive(self) -> list[int]:
        """Server processes, one a connection, that still run."""
        found = []
        for entry in self.pids.iterdir():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry.name}/cmdline").read_bytes()
                state = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()[0]
                if b"sshd" in command and state != "Z":
                    found.append(int(entry.name))
        return found

    def signal_connections(self, number: signal.Signals) -> None:
        """KILL cuts every connection as a dead link would; STOP stalls it. The far commands go on."""
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def end(self) -> None:
        self.signal_connections(signal.SIGKILL)
        until = time.monotonic() + 5
        while self.alive() and time.monotonic() < until:
            time.sleep(0.02)
        assert not self.alive()
