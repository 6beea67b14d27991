"""PURE: the inventory as it was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.inventory.model import Host, Inventory, Target
from orchestrator.reports.table import DASH, render_rows


def render_hosts(inventory: Inventory, targets: Sequence[Target]) -> str:
    rows = [("TARGET", "KIND", "HOST", "LOGIN", "PAYLOAD", "ROOT", "GROUPS")]
    for target in targets:
        groups = ", ".join(name for name, members in inventory.groups.items() if target.name in members)
        kind = f"{target.kind} {target.container_id}" if target.container_id is not None else target.kind
        payload = target.payload.name if target.payload else DASH
        rows.append((target.name, kind, target.host.name, login(target.host), payload, target.base, groups or DASH))
    return f"{inventory.path}\n{render_rows(rows)}"


def login(host: Host) -> str:
    if host.transport == "local":
        return "this machine"
    text = host.login
    if host.port is not None:
        text += f":{host.port}"
    return text if host.become == "none" else f"{text} ({host.become})"


def hosts_record(inventory: Inventory, targets: Sequence[Target]) -> dict[str, Any]:
    """For --json; schema 1."""
    return {
        "schema": 1,
        "inventory": str(inventory.path),
        "targets": [
            {
                "name": target.name,
                "kind": target.kind,
                "container_id": target.container_id,
                "host": target.host.name,
                "address": target.host.address,
                "user": target.host.user,
                "port": target.host.port,
                "become": target.host.become,
                "transport": target.host.transport,
                "root": target.root,
                "payload": target.payload.name if target.payload else None,
                "groups": [name for name, members in inventory.groups.items() if target.name in members],
            }
            for target in targets
        ],
    }
