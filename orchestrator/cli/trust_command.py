"""orch trust: show a host's key, ask, remember it."""

from __future__ import annotations

import argparse
import asyncio
import sys

from orchestrator.cli.output import Output
from orchestrator.errors import HostKeyError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_host
from orchestrator.transport.trust import fetch_host_key, remember_host_key


def run(arguments: argparse.Namespace, output: Output) -> int:
    host = select_host(load_inventory(arguments.inventory), arguments.host)
    offered = asyncio.run(fetch_host_key(host))
    output.result(f"{host.name} ({host.address}) shows this key:\n  {offered.type} {offered.fingerprint_sha256}")
    if offered.already_known:
        output.result(f"It is known already ({offered.known_hosts_file}).")
        return 0
    output.result("Compare it with what the host itself says: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "the fingerprint has to be confirmed, and there is no terminal to ask on; nothing was remembered",
                way_out=f"orch trust {arguments.host} --yes   (remembers it; compare it afterwards)",
            )
        if input("Trust it? [yes/no] ").strip().lower() != "yes":
            raise HostKeyError(
                "the key was not confirmed; nothing was remembered",
                way_out=f"orch trust {arguments.host}   and `yes`, once the host itself shows the same fingerprint",
            )
    remember_host_key(offered)
    output.result(f"Remembered in {offered.known_hosts_file}.")
    output.next_step("orch status")
    return 0
