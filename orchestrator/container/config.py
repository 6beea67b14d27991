"""What the host's own file says of a container: cores, memory, devices, mounts. PURE.

Rule: only what tells how the container is made; the values of its environment variables are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.inventory.model import ContainerKind

FILES: Mapping[str, str] = {"pct": "/etc/pve/lxc/{id}.conf"}
NOT_OF_IT = ("lock", "parent", "description", "snaptime", "tags", "onboot", "startup", "digest")
"""Keys that say what is being done with the container, or when it is started."""


def config_file(kind: ContainerKind, container_id: int | None) -> str | None:
    """On the host; None: this kind has none that is known."""
    return FILES[kind].format(id=container_id) if kind in FILES and container_id is not None else None


def parse_config(text: str) -> dict[str, str]:
    """Key -> value of the current state: snapshots follow it in sections. A key that stands more than once has all its
    values, in their order, separated by `; `."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            break
        key, separator, value = line.partition(":")
        if line.startswith("lxc.") and "=" in key:
            key, separator, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not separator or key.startswith("#") or key in NOT_OF_IT:
            continue
        if key.startswith("lxc.environment"):  # and .runtime, .hooks
            value = value.partition("=")[0] + "=..."
        found.setdefault(key, []).append(value)
    return {key: "; ".join(values) for key, values in sorted(found.items())}
