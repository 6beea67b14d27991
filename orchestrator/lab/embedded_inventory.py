"""The embedded lab's inventory: the project's own, with only what names the host and the container replaced.

Rule: no host but the lab's stays in it, so nothing that uses it can reach another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from orchestrator.lab.records import LabError


def lab_inventory(source: Path, container: int, host: Mapping[str, object], target: Mapping[str, object],
                  payload: Mapping[str, object]) -> str:  # fmt: skip
    """The text of an inventory like the one at source, with these keys put over those of the host that has the
    container, of the container and of every payload. A payload's folder becomes absolute."""
    try:
        raw = yaml.safe_load(source.read_text())
        hosts: dict[str, Any] = raw["hosts"]
        name, found = host_with(hosts, container)
        containers = {key: value for key, value in found["containers"].items() if value.get("id") == container}
        made: dict[str, Any] = {
            "hosts": {
                name: {**found, **host, "containers": {key: {**value, **target} for key, value in containers.items()}}
            }
        }
        if raw.get("payloads"):
            made["payloads"] = {key: moved(value, source, payload) for key, value in raw["payloads"].items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"no lab can be made like {source}", evidence=f"{type(error).__name__}: {error}") from error
    heading = f"# Made by `orch lab up` from {source}. Goes with the lab.\n"
    return heading + yaml.safe_dump(made, sort_keys=False, allow_unicode=True)


def host_with(hosts: Mapping[str, Any], container: int) -> tuple[str, dict[str, Any]]:
    for name, host in hosts.items():
        for entry in (host.get("containers") or {}).values():
            if entry.get("id") == container:
                return name, dict(host)
    raise KeyError(f"no host has a container {container}")


def moved(payload: Mapping[str, Any], source: Path, changes: Mapping[str, object]) -> dict[str, Any]:
    """Without the rate that is expected: this machine's is another, and each of its runs would count as slow."""
    expected = {key: value for key, value in (payload.get("expected") or {}).items() if key != "tokens_per_s"}
    rest = {key: value for key, value in payload.items() if key != "expected"}
    rest |= {"expected": expected} if expected else {}
    return {**rest, **changes, "folder": str((source.parent / payload["folder"]).resolve())}
