"""Chooses targets and hosts of an inventory by the words of a command line.

Rule: pure; a word that could mean two things is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Host, Inventory, Target

NONE_NAMED = "the inventory has several targets, and none was named"


def select_targets(inventory: Inventory, selectors: Sequence[str]) -> tuple[Target, ...]:
    """By target name, group, container id or `all`; each target once. No selector: the only target there is.
    Raises UsageError."""
    if not inventory.targets:
        raise UsageError(
            f"{inventory.path} has no target",
            way_out="give a host `containers:`, or a `root:` if work runs on it itself",
        )
    if not selectors:
        if len(inventory.targets) == 1:
            return tuple(inventory.targets.values())
        raise UsageError(NONE_NAMED, evidence=_listed(inventory), way_out="name one or several, or say `all`")
    chosen: dict[str, Target] = {}
    for selector in selectors:
        for target in _select(inventory, selector):
            chosen[target.name] = target
    return tuple(chosen.values())


def select_one_target(inventory: Inventory, selector: str | None) -> Target:
    """For commands that can only concern one, which take it as `-t`. Raises UsageError."""
    if selector is None and len(inventory.targets) > 1:
        raise UsageError(NONE_NAMED, evidence=_listed(inventory), way_out="name one: -t TARGET")
    targets = select_targets(inventory, [selector] if selector is not None else [])
    if len(targets) > 1:
        names = "\n".join(target.label for target in targets)
        raise UsageError(
            f"`{selector}` is {len(targets)} targets; this command takes one",
            evidence=names,
            way_out="name one: -t TARGET",
        )
    return targets[0]


def select_host(inventory: Inventory, name: str) -> Host:
    """By host name, target name (its host) or address. Raises UsageError."""
    if name in inventory.hosts:
        return inventory.hosts[name]
    if name in inventory.targets:
        return inventory.targets[name].host
    by_address = [host for host in inventory.hosts.values() if host.address == name]
    if len(by_address) == 1:
        return by_address[0]
    if by_address:
        raise UsageError(
            f"several hosts have the address {name}",
            evidence="\n".join(host.name for host in by_address),
            way_out="name the host, not its address",
        )
    from orchestrator.inventory.mistakes import did_you_mean  # difflib, wanted only here

    known = [*inventory.hosts, *inventory.targets, *(host.address for host in inventory.hosts.values())]
    raise UsageError(
        f"there is no host `{name}` in {inventory.path}",
        evidence="\n".join(f"{host.name} ({host.address})" for host in inventory.hosts.values()),
        way_out=did_you_mean(name, known),
    )


def _select(inventory: Inventory, selector: str) -> list[Target]:
    if selector == "all":
        return list(inventory.targets.values())
    if selector in inventory.targets:
        return [inventory.targets[selector]]
    if selector in inventory.groups:
        return [inventory.targets[name] for name in inventory.groups[selector]]
    by_id = [target for target in inventory.targets.values() if str(target.container_id) == selector]
    if len(by_id) == 1:
        return by_id
    if by_id:
        raise UsageError(
            f"several hosts have a container {selector}",
            evidence="\n".join(target.label for target in by_id),
            way_out="name the target",
        )
    raise _unknown(inventory, selector)


def _unknown(inventory: Inventory, selector: str) -> UsageError:
    from orchestrator.inventory.mistakes import did_you_mean  # difflib, wanted only here

    known = [*inventory.targets, *inventory.groups]
    way_out = did_you_mean(selector, known)
    if selector in inventory.hosts:
        names = [target.name for target in inventory.targets.values() if target.host.name == selector]
        way_out = f"it is a host; its targets: {', '.join(names) or 'none'}"
    return UsageError(f"there is no target or group `{selector}`", evidence=_listed(inventory), way_out=way_out)


def _listed(inventory: Inventory) -> str:
    rows = [target.label for target in inventory.targets.values()]
    rows += [f"{name} (group: {', '.join(members)})" for name, members in inventory.groups.items()]
    return "\n".join(rows)
