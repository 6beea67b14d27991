"""From a host of the inventory to asyncssh's options, hop by hop.

Rule: every hop is checked against known_hosts as strictly as the last one, and every option that asyncssh would
read differently from ssh (no host key check for `none`, no shell for ProxyCommand, no keepalive) is set here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from orchestrator.inventory.model import Host
from orchestrator.transport.known_hosts import load_known_hosts
from orchestrator.transport.runtime_folder import keep_settings


@dataclass(frozen=True)
class Login:
    """What asyncssh.connect is called with, but for the tunnel."""

    name: str
    """As it was asked for: an ssh_config alias or an address."""
    options: asyncssh.SSHClientConnectionOptions
    """Resolved, to look things up; without keys."""
    arguments: dict[str, Any]
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Hop:
    address: str
    user: str | None
    port: int | None


def host_login(host: Host) -> Login:
    """Raises asyncssh.ConfigParseError, ValueError, InventoryError."""
    settings = keep_settings(host)
    login = hop_login(Hop(host.address, host.user, host.port), settings, host)
    if host.identity_file is not None:
        # As `-i` with IdentitiesOnly: this key and no other.
        login.arguments.update(client_keys=[str(host.identity_file)], agent_path=None)
    return login


def hop_login(hop: Hop, settings: Path, host: Host) -> Login:
    """One hop on the way to `host`. Raises as `host_login` does."""
    arguments: dict[str, Any] = {"host": hop.address, "config": [str(settings)]}
    if hop.user is not None:
        arguments["username"] = hop.user
    if hop.port is not None:
        arguments["port"] = hop.port
    options = asyncssh.SSHClientConnectionOptions(**arguments, client_keys=None, agent_path=None, known_hosts=b"")
    jumps = options.config.get("ProxyJump")
    command = options.config.get("ProxyCommand")
    arguments.update(
        known_hosts=load_known_hosts(options),
        connect_timeout=host.connect_timeout_s,
        login_timeout=0,
        keepalive_interval=max(1.0, host.keepalive_interval_s),
        keepalive_count_max=max(1, host.keepalive_count),
        password_auth=False,
        kbdint_auth=False,
        tunnel=None,
        proxy_command=None,
    )
    hops: tuple[Hop, ...] = ()
    if isinstance(jumps, str) and jumps.lower() != "none":
        hops = tuple(parse_hop(word) for word in jumps.split(","))
    elif isinstance(command, str) and command.lower() != "none":
        arguments["proxy_command"] = ["/bin/sh", "-c", "exec " + command.removeprefix("exec ")]
    return Login(hop.address, options, arguments, hops)


def parse_hop(text: str) -> Hop:
    """`[user@]host[:port]` or the same as an ssh:// URI. Raises ValueError."""
    found = re.fullmatch(
        r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^:@/]+))(?::(?P<port>\d+))?/?",
        text.strip(),
    )
    if found is None:
        raise ValueError(f"ProxyJump {text!r} is not [user@]host[:port]")
    port = int(found["port"]) if found["port"] else None
    return Hop(found["six"] or found["host"], found["user"], port)
