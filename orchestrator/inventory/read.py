"""Inventory text -> frozen facts.

Rule: pure; every mistake that can be found in one go is reported in one InventoryError.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from orchestrator.inventory import relations, schema
from orchestrator.inventory.mistakes import Mistake, MistakeError, error_for
from orchestrator.inventory.model import Caches, Environment, Expected, Host, Inventory, Payload, Target, Topology
from orchestrator.inventory.wording import mistake_for
from orchestrator.inventory.yaml_lines import Mapping, compose
from orchestrator.inventory.yaml_values import Places, plain_values


def read_inventory(text: str, path: Path, home: Path) -> Inventory:
    """path: absolute, of the file; home: what `~` means. Raises InventoryError."""
    try:
        entry = _validated(text, str(path))
    except MistakeError as error:
        raise error_for(str(path), text, [error.mistake]) from error
    return _Conversion(entry, path, home).inventory()


def _validated(text: str, file: str) -> schema.InventoryEntry:
    entry, mistakes = _checked(*compose(text))
    if entry is None or mistakes:
        raise error_for(file, text, mistakes)
    return entry


def find_mistakes(text: str) -> tuple[object, Places, list[Mistake], list[Mistake]]:
    """What is written there, where each value stands, what is wrong with it as YAML, and what as an inventory.
    Raises MistakeError where the reading ends at once."""
    root, refused = compose(text)
    values, places, unclear = plain_values(root)
    of_yaml = [*refused, *unclear]
    _, found = _checked(root, refused)
    already = set(of_yaml)
    return values, places, of_yaml, [mistake for mistake in found if mistake not in already]


def _checked(root: Mapping, refused: list[Mistake]) -> tuple[schema.InventoryEntry | None, list[Mistake]]:
    values, places, unclear = plain_values(root)
    mistakes = [*refused, *unclear]
    try:
        entry = schema.InventoryEntry.model_validate(values)
    except ValidationError as error:
        found = [mistake_for(details, places) for details in error.errors(include_url=False)]
        return None, [*mistakes, *not_said_yet(found, mistakes)]
    if not mistakes:
        mistakes = relations.find_mistakes(entry, places)
    return entry, [*mistakes, *_home_of_others(entry, places)]


def not_said_yet(found: list[Mistake], said: list[Mistake]) -> list[Mistake]:
    """A value that could not be read is None to the schema, which would object to it once more."""
    places = {mistake.position for mistake in said}
    return [mistake for mistake in found if mistake.position not in places]


def _home_of_others(entry: schema.InventoryEntry, places: Places) -> list[Mistake]:
    mistakes = []
    for path, value in _local_paths(entry):
        if value is not None and value.startswith("~") and value.split("/")[0] != "~":
            said = "only one's own home can be written as `~`"
            mistakes.append(Mistake(places.of(path), ".".join(path), said, "write the absolute path"))
    return mistakes


def _local_paths(entry: schema.InventoryEntry) -> list[tuple[tuple[str, ...], str | None]]:
    paths: list[tuple[tuple[str, ...], str | None]] = []
    for name, host in entry.hosts.items():
        paths.append((("hosts", name, "identity_file"), host.identity_file))
        paths.append((("hosts", name, "ssh_config"), host.ssh_config))
        paths.append((("hosts", name, "known_hosts"), host.known_hosts))
    for name, payload in entry.payloads.items():
        paths.append((("payloads", name, "folder"), payload.folder))
        for purpose, environment in payload.environments.items():
            paths.append((("payloads", name, "environments", purpose, "lock"), environment.lock))
    return paths


class _Conversion:
    """Fills defaults and resolves paths; the entry has been checked."""

    def __init__(self, entry: schema.InventoryEntry, path: Path, home: Path) -> None:
        self._entry = entry
        self._path = path
        self._home = home

    def inventory(self) -> Inventory:
        payloads = {name: self._payload(name, payload) for name, payload in self._entry.payloads.items()}
        hosts: dict[str, Host] = {}
        targets: dict[str, Target] = {}
        for name, entry in self._entry.hosts.items():
            host = hosts[name] = self._host(name, entry)
            if relations.is_target(entry):
                payload = payloads[entry.payload] if entry.payload else None
                targets[name] = Target(name, host, "none", None, entry.root or "/root", entry.python, payload)
            for inner, container in entry.containers.items():
                payload = payloads[container.payload] if container.payload else None
                targets[inner] = Target(
                    inner, host, container.kind, container.id, container.root, container.python, payload
                )
        groups = {name: relations.expand_group(self._entry, name) for name in self._entry.groups}
        return Inventory(
            self._path,
            MappingProxyType(hosts),
            MappingProxyType(targets),
            MappingProxyType(groups),
            MappingProxyType(payloads),
        )

    def _local(self, written: str | None) -> Path | None:
        return None if written is None else self._local_path(written)

    def _local_path(self, written: str) -> Path:
        """Relative to the inventory's folder; `..` is resolved by its words, symlinks stay as they are."""
        path = self._home / written[2:] if written == "~" or written.startswith("~/") else Path(written)
        return Path(posixpath.normpath(self._path.parent / path))

    def _host(self, name: str, entry: schema.HostEntry) -> Host:
        return Host(
            name=name,
            address=entry.address or "localhost",
            transport=entry.transport,
            user=entry.user,
            port=entry.port,
            identity_file=self._local(entry.identity_file),
            ssh_config_file=self._local(entry.ssh_config),
            known_hosts_file=self._local(entry.known_hosts),
            connect_timeout_s=float(entry.connect_timeout_s),
            keepalive_interval_s=float(entry.keepalive.interval_s),
            keepalive_count=entry.keepalive.count,
            become=entry.become,
        )

    def _payload(self, name: str, entry: schema.PayloadEntry) -> Payload:
        topology = Topology(entry.topology.targets, entry.topology.drafters) if entry.topology else None
        devices = entry.devices
        if devices is None and topology is not None:
            devices = topology.targets + topology.drafters
        expected = entry.expected
        return Payload(
            name=name,
            folder=self._local_path(entry.folder),
            command=tuple(entry.command),
            warmup=tuple(entry.warmup or ()),
            session=entry.session,
            python=entry.python,
            environments=MappingProxyType(
                {purpose: self._environment(purpose, made) for purpose, made in entry.environments.items()}
            ),
            environment=relations.environment_of(entry),
            environment_check=entry.environment_check,
            variables=MappingProxyType(dict(entry.variables)),
            data=entry.data,
            model=entry.model,
            caches=Caches(entry.caches.inductor, entry.caches.triton, entry.caches.extensions),
            topology=topology,
            devices=devices or None,
            min_free_disk_gib=float(entry.min_free_disk_gib),
            stop_timeout_s=float(entry.stop_timeout_s),
            settings=MappingProxyType(dict(entry.settings)),
            exclude=tuple(entry.exclude),
            expected=Expected(
                expected.tokens_per_s.min, expected.tokens_per_s.max, MappingProxyType(dict(expected.hashes))
            ),
        )

    def _environment(self, purpose: str, entry: schema.EnvironmentEntry) -> Environment:
        return Environment(purpose, self._local_path(entry.lock), entry.python, tuple(entry.indexes))
