"""`orch trust`: fetch the key a host offers, show it, remember it.

Rule: the only place that talks to a host whose key is not known, and nothing is sent to it beyond the key exchange.
A key on record is never replaced.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from orchestrator.errors import HostKeyError
from orchestrator.inventory.model import Host
from orchestrator.transport.asyncssh_transport import close_all, connect_hops, resolve_login, translated
from orchestrator.transport.failures import SshFailure, failure_error
from orchestrator.transport.known_hosts import recorded_keys, user_files
from orchestrator.transport.ssh_settings import check_address, known_hosts_name, typed_login

_PREFERRED_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


@dataclass(frozen=True)
class OfferedKey:
    type: str
    """`ssh-ed25519`"""
    fingerprint_sha256: str
    """`SHA256:...`, as ssh-keygen -l prints it."""
    known_hosts_line: str
    known_hosts_file: Path
    already_known: bool
    changed: bool
    """Another key of this host is on record."""
    host_label: str


async def fetch_host_key(host: Host) -> OfferedKey:
    """Raises UnreachableError, InventoryError; HostKeyError for a jump host on the way."""
    check_address(host)
    login = resolve_login(host)
    way: list[asyncssh.SSHClientConnection] = []
    try:
        async with asyncio.timeout(host.connect_timeout_s):
            await connect_hops(login, host, way)
            key = await asyncssh.get_server_host_key(
                login.options.host,
                login.options.port,
                tunnel=way[-1] if way else None,
                proxy_command=login.arguments["proxy_command"],
                config=None,
                server_host_key_algs=list(_PREFERRED_KEYS),
            )
    except TimeoutError as error:
        raise failure_error(SshFailure("timed_out"), host) from error
    except (asyncssh.Error, OSError, ValueError) as error:
        raise translated(error, host, None) from error
    finally:
        await close_all(way)
    if key is None:
        raise HostKeyError(f"{host.login}: the server offered no host key", way_out=f"see more: {typed_login(host)} -v")
    return _offered(key, host, login.options, login.arguments["known_hosts"])


def remember_host_key(offered: OfferedKey) -> None:
    """Append the line, once. Raises HostKeyError when another key is on record."""
    if offered.already_known:
        return
    if offered.changed:
        raise HostKeyError(
            f"{offered.host_label}: another key of this host is on record; it was not replaced",
            evidence=f"offered now: {offered.type} {offered.fingerprint_sha256}",
            way_out=f"find out why; then remove the old one: ssh-keygen -R '{offered.known_hosts_line.split()[0]}' "
            f"-f {offered.known_hosts_file}",
        )
    file = offered.known_hosts_file
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+", encoding="utf-8", errors="surrogateescape") as stream:
        text = stream.read()
        if offered.known_hosts_line in text.splitlines():
            return
        gap = "" if not text or text.endswith("\n") else "\n"
        stream.write(f"{gap}{offered.known_hosts_line}\n")
        stream.flush()
        os.fsync(stream.fileno())


def _offered(
    key: asyncssh.SSHKey,
    host: Host,
    options: asyncssh.SSHClientConnectionOptions,
    known: asyncssh.SSHKnownHosts,
) -> OfferedKey:
    plain, revoked = recorded_keys(known, options)
    if key in revoked:
        raise failure_error(SshFailure("host_key_revoked"), host)
    name = options.host_key_alias or options.host
    public = key.export_public_key("openssh").decode().split()
    file = next(iter(user_files(options)), Path.home() / ".ssh" / "known_hosts")
    return OfferedKey(
        type=public[0],
        fingerprint_sha256=key.get_fingerprint("sha256"),
        known_hosts_line=f"{known_hosts_name(name, options.port)} {public[0]} {public[1]}",
        known_hosts_file=file,
        already_known=key in plain,
        changed=bool(plain) and key not in plain,
        host_label=host.login,
    )
