"""From a host of the inventory to ssh's settings and command lines. PURE.

Rule: what the inventory states comes first, the strict policy always; everything else is left to ssh_config.
Both clients read the one settings file made here, and a jump host falls under it as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import InventoryError
from orchestrator.inventory.model import Host
from orchestrator.transport.quoting import shell_command

PERSIST_S = 60
SYSTEM_SETTINGS = Path("/etc/ssh/ssh_config")


def check_address(host: Host) -> None:
    """Raises InventoryError for what ssh would read as an option or as several words."""
    address = host.address
    if not address or address.startswith("-") or any(c.isspace() or not c.isprintable() for c in address):
        raise InventoryError(
            f"host {host.name}: {address!r} cannot be an address", way_out="correct `address:` in the inventory"
        )
    if host.user is not None and (not host.user or host.user.startswith("-")):
        raise InventoryError(f"host {host.name}: {host.user!r} cannot be a user", way_out="correct `user:`")


def settings_text(host: Host, *, home: Path, network: str) -> str:
    """An ssh_config file: the policy, then the user's and the system's own.

    network: names the network namespace; the same address in another one is another machine.
    """
    lines = [
        # The file's name comes from its text, and shared connections from the name: neither may be shared.
        f"# identity {host.identity_file}, network {network}",
        "Host *",
        "  BatchMode yes",
        "  StrictHostKeyChecking yes",
        f"  ConnectTimeout {max(1, math.ceil(host.connect_timeout_s))}",
        f"  ServerAliveInterval {max(1, math.ceil(host.keepalive_interval_s))}",
        f"  ServerAliveCountMax {max(1, host.keepalive_count)}",
    ]
    if host.known_hosts_file is not None:
        lines.append(f"  UserKnownHostsFile {_quoted(host.known_hosts_file)}")
    if host.ssh_config_file is not None:
        lines.append(f"Include {_quoted(host.ssh_config_file)}")
    else:
        lines += [f"Include {_quoted(home / '.ssh' / 'config')}", f"Include {_quoted(SYSTEM_SETTINGS)}"]
    return "\n".join(lines) + "\n"


def ssh_argv(
    host: Host, settings: Path, *, control_path: Path | None, options: Sequence[str] = (), interactive: bool = False
) -> list[str]:
    """The ssh command line up to the far command. control_path None: a connection of its own."""
    argv = ["ssh", "-F", str(settings), "-t" if interactive else "-T", "-o", "RemoteCommand=none"]
    argv += ["-o", "ClearAllForwardings=yes"]
    if control_path is None:
        argv += ["-o", "ControlMaster=no", "-o", "ControlPath=none"]
    else:
        argv += ["-o", "ControlMaster=auto", "-o", f"ControlPath={control_path}"]
        argv += ["-o", f"ControlPersist={PERSIST_S}"]
    for option in options:
        argv += ["-o", option]
    if host.user is not None:
        argv += ["-l", host.user]
    if host.port is not None:
        argv += ["-p", str(host.port)]
    if host.identity_file is not None:
        argv += ["-i", str(host.identity_file), "-o", "IdentitiesOnly=yes"]
    return [*argv, "--", host.address]


def far_command(argv: Sequence[str]) -> str:
    """`exec`: the login shell does not stay as one more process."""
    return "exec " + shell_command(argv)


def typed_login(host: Host) -> str:
    """What a person would type before a command: `ssh -p 2222 root@10.1.2.6`."""
    words = ["ssh"]
    if host.ssh_config_file is not None:
        words += ["-F", str(host.ssh_config_file)]
    if host.port is not None:
        words += ["-p", str(host.port)]
    if host.identity_file is not None:
        words += ["-i", str(host.identity_file)]
    return shell_command([*words, host.login])


def known_hosts_name(address: str, port: int | None) -> str:
    """How known_hosts writes a host."""
    return address if port in (None, 22) else f"[{address}]:{port}"


def _quoted(path: Path) -> str:
    return f'"{path}"'
