"""An inventory as plain JSON values and back, for the cache.

Rule: pure; what comes back equals what went in, or `restore` raises. It checks no meaning: only what `read`
accepted is ever kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.inventory.model import Caches, Environment, Expected, Host, Inventory, Payload, Target, Topology

Plain = dict[str, Any]
_HOST_PATHS = ("identity_file", "ssh_config_file", "known_hosts_file")


def plain(inventory: Inventory) -> Plain:
    return {
        "path": str(inventory.path),
        "hosts": {name: _plain_host(host) for name, host in inventory.hosts.items()},
        "payloads": {name: _plain_payload(payload) for name, payload in inventory.payloads.items()},
        "targets": {name: _plain_target(target) for name, target in inventory.targets.items()},
        "groups": {name: list(members) for name, members in inventory.groups.items()},
    }


def restore(values: Plain) -> Inventory:
    """Raises KeyError, TypeError, ValueError, AttributeError for what `plain` did not make."""
    hosts = {name: _host(host) for name, host in values["hosts"].items()}
    payloads = {name: _payload(payload) for name, payload in values["payloads"].items()}
    targets = {name: _target(target, hosts, payloads) for name, target in values["targets"].items()}
    groups = {name: tuple(members) for name, members in values["groups"].items()}
    return Inventory(
        path=Path(values["path"]),
        hosts=MappingProxyType(hosts),
        targets=MappingProxyType(targets),
        groups=MappingProxyType(groups),
        payloads=MappingProxyType(payloads),
    )


def _plain_host(host: Host) -> Plain:
    values = dict(vars(host))
    for name in _HOST_PATHS:
        values[name] = None if values[name] is None else str(values[name])
    return values


def _host(values: Plain) -> Host:
    paths = {name: None if values[name] is None else Path(values[name]) for name in _HOST_PATHS}
    return Host(**{**values, **paths})


def _plain_payload(payload: Payload) -> Plain:
    values = dict(vars(payload))
    values["folder"] = str(payload.folder)
    values["variables"] = dict(payload.variables)
    values["settings"] = dict(payload.settings)
    values["caches"] = dict(vars(payload.caches))
    values["environments"] = {
        purpose: {**vars(made), "lock": str(made.lock)} for purpose, made in payload.environments.items()
    }
    values["topology"] = None if payload.topology is None else dict(vars(payload.topology))
    values["expected"] = {**vars(payload.expected), "hashes": dict(payload.expected.hashes)}
    return values


def _payload(values: Plain) -> Payload:
    expected = values["expected"]
    rebuilt: Plain = {
        "folder": Path(values["folder"]),
        "command": tuple(values["command"]),
        "warmup": tuple(values["warmup"]),
        "variables": MappingProxyType(values["variables"]),
        "settings": MappingProxyType(values["settings"]),
        "exclude": tuple(values["exclude"]),
        "caches": Caches(**values["caches"]),
        "environments": MappingProxyType(
            {purpose: _environment(made) for purpose, made in values["environments"].items()}
        ),
        "topology": None if values["topology"] is None else Topology(**values["topology"]),
        "expected": Expected(**{**expected, "hashes": MappingProxyType(expected["hashes"])}),
    }
    return Payload(**{**values, **rebuilt})


def _environment(values: Plain) -> Environment:
    return Environment(**{**values, "lock": Path(values["lock"]), "indexes": tuple(values["indexes"])})


def _plain_target(target: Target) -> Plain:
    values = dict(vars(target))
    values["host"] = target.host.name
    values["payload"] = None if target.payload is None else target.payload.name
    return values


def _target(values: Plain, hosts: Mapping[str, Host], payloads: Mapping[str, Payload]) -> Target:
    payload = None if values["payload"] is None else payloads[values["payload"]]
    return Target(**{**values, "host": hosts[values["host"]], "payload": payload})
