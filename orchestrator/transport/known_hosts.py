"""Host keys as ssh_config says where to look for them.

Rule: always a list of keys, perhaps an empty one; never "no check" (asyncssh reads `UserKnownHostsFile none` so).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asyncssh

from orchestrator.errors import InventoryError

_DEFAULT_USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_DEFAULT_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


def user_files(options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
    """Where this host's keys are looked for, first the one that is written to."""
    return _paths(options.config.get("UserKnownHostsFile", _DEFAULT_USER_FILES), options)


def load_known_hosts(options: asyncssh.SSHClientConnectionOptions) -> asyncssh.SSHKnownHosts:
    """Every key of every file that is there. Raises InventoryError for an unreadable one."""
    files = user_files(options) + _paths(options.config.get("GlobalKnownHostsFile", _DEFAULT_GLOBAL_FILES), options)
    known = asyncssh.SSHKnownHosts()
    for file in files:
        try:
            known.load(file.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise InventoryError(
                f"{file}: cannot be read as known_hosts",
                evidence=str(error),
                way_out="correct it, or name another file: `known_hosts:` of the host in the inventory",
            ) from error
    return known


def recorded_keys(
    known: asyncssh.SSHKnownHosts, options: asyncssh.SSHClientConnectionOptions
) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
    """The plain and the revoked keys on record for the host that the options lead to."""
    port = None if options.port == 22 else options.port
    plain, _, revoked, *_ = known.match(options.host_key_alias or options.host, "", port)
    return list(plain), list(revoked)


def _paths(names: object, options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
    assert isinstance(names, Sequence)
    tokens = {"%%": "%", "%d": str(Path.home()), "%h": options.host, "%k": options.host_key_alias or options.host}
    paths = []
    for name in names:
        for token, value in tokens.items():
            name = name.replace(token, value)
        if name.lower() != "none":
            paths.append(Path(name).expanduser())
    return paths
