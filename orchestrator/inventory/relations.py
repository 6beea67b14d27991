"""What must hold between the entries of an inventory: names, references, groups, ids.

Rule: pure; gives mistakes, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.inventory.mistakes import Mistake, did_you_mean
from orchestrator.inventory.schema import HostEntry, InventoryEntry, PayloadEntry
from orchestrator.inventory.yaml_values import Path, Places, dotted


def is_target(host: HostEntry) -> bool:
    """Whether work runs on the host itself."""
    return host.root is not None or host.payload is not None


def environment_of(payload: PayloadEntry) -> str | None:
    """The purpose of the environment that the command runs in; the payload has been checked."""
    if payload.environment is not None or payload.python is not None:
        return payload.environment
    return next(iter(payload.environments), None) if len(payload.environments) == 1 else None


def target_names(entry: InventoryEntry) -> list[str]:
    names = []
    for host_name, host in entry.hosts.items():
        if is_target(host):
            names.append(host_name)
        names.extend(host.containers)
    return names


def expand_group(entry: InventoryEntry, name: str) -> tuple[str, ...]:
    """Target names of a group whose references have been checked, each once, in the order written."""
    found: dict[str, None] = {}
    for member in entry.groups[name]:
        for target in expand_group(entry, member) if member in entry.groups else (member,):
            found[target] = None
    return tuple(found)


def find_mistakes(entry: InventoryEntry, places: Places) -> list[Mistake]:
    return [
        *_hosts(entry, places),
        *_names(entry, places),
        *_same_container(entry, places),
        *_references(entry, places),
        *_groups(entry, places),
        *_ranges(entry, places),
        *_environments(entry, places),
    ]


def _at(places: Places, path: Path, said: str, write: str = "", *, key: bool = False) -> Mistake:
    position = places.keys.get(path) if key else None
    return Mistake(position or places.of(path), dotted(path), said, write)


def _hosts(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    for name, host in entry.hosts.items():
        if host.transport == "local" and host.address is not None:
            yield _at(places, ("hosts", name, "address"), "transport `local` is this machine", "remove the address")
        if host.transport != "local" and host.address is None:
            yield _at(
                places, ("hosts", name), "`address` is missing", "write `address:` and a name or address", key=True
            )
        if host.python is not None and not is_target(host):
            yield _at(
                places,
                ("hosts", name, "python"),
                "the host itself is no target, so nothing uses this",
                "put it into the container, or give the host a `root:` or `payload:`",
            )


def _names(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    seen: dict[str, str] = {}
    owned: list[tuple[Path, str, str]] = [(("hosts", name), name, "host") for name in entry.hosts]
    for host_name, host in entry.hosts.items():
        owned += [(("hosts", host_name, "containers", name), name, "container") for name in host.containers]
    owned += [(("groups", name), name, "group") for name in entry.groups]
    for path, name, kind in owned:
        if name in seen:
            yield _at(places, path, f"a {seen[name]} has this name already", "give each its own name", key=True)
        seen.setdefault(name, kind)


def _same_container(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    seen: dict[tuple[object, ...], str] = {}
    for host_name, host in entry.hosts.items():
        place = ("local",) if host.address is None else (host.address.lower(), host.port or 22, host.ssh_config)
        for name, container in host.containers.items():
            other = seen.setdefault((*place, container.id), name)
            if other != name:
                path = ("hosts", host_name, "containers", name, "id")
                yield _at(places, path, f"`{other}` is the same container", "keep one of them, or correct the id")


def _references(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    for host_name, host in entry.hosts.items():
        named: list[tuple[Path, str | None]] = [(("hosts", host_name, "payload"), host.payload)]
        for name, container in host.containers.items():
            named.append((("hosts", host_name, "containers", name, "payload"), container.payload))
        for path, payload in named:
            if payload is not None and payload not in entry.payloads:
                write = did_you_mean(payload, entry.payloads) or f"write it below `payloads:` as `{payload}:`"
                yield _at(places, path, f"there is no payload `{payload}`", write)


def _groups(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    targets = set(target_names(entry))
    for name, members in entry.groups.items():
        for index, member in enumerate(members):
            if member in targets or member in entry.groups:
                continue
            if member in entry.hosts:
                names = ", ".join(entry.hosts[member].containers) or "none"
                said, write = f"`{member}` is a host and no target", f"name its containers: {names}"
            else:
                said = f"there is no target or group `{member}`"
                write = did_you_mean(member, targets | set(entry.groups))
            yield _at(places, ("groups", name, index), said, write)
        if _reaches(entry, name, name, set()):
            yield _at(places, ("groups", name), "the group contains itself", "name targets instead", key=True)


def _reaches(entry: InventoryEntry, start: str, wanted: str, seen: set[str]) -> bool:
    for member in entry.groups.get(start, ()):
        if member == wanted:
            return True
        if member not in seen:
            seen.add(member)
            if _reaches(entry, member, wanted, seen):
                return True
    return False


def _ranges(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    for name, payload in entry.payloads.items():
        wanted = payload.expected.tokens_per_s
        if wanted.min is not None and wanted.max is not None and wanted.min > wanted.max:
            yield _at(places, ("payloads", name, "expected", "tokens_per_s"), "`min` is more than `max`", "swap them")


def _environments(entry: InventoryEntry, places: Places) -> Iterator[Mistake]:
    for name, payload in entry.payloads.items():
        chosen, known = payload.environment, payload.environments
        if chosen is not None and chosen not in known:
            write = did_you_mean(chosen, known) or f"write it below `environments:` as `{chosen}:`"
            yield _at(places, ("payloads", name, "environment"), f"there is no environment `{chosen}`", write)
        if chosen is not None and payload.python is not None:
            said = "`python` and `environment` both say what the command runs in"
            yield _at(places, ("payloads", name, "environment"), said, "keep one of them", key=True)
        if chosen is None and payload.python is None and len(known) > 1:
            said = f"there are {len(known)} environments, and nothing says which one the command runs in"
            yield _at(
                places, ("payloads", name, "environments"), said, f"write `environment: {next(iter(known))}`", key=True
            )
