"""The live compile caches as the agent's cache_show tells of them: kinds, devices, users, and beside snapshots.

Rule: pure; what was not told is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str, as_strs

KINDS = ("fxgraph", "aotautograd", "triton", "cubin", "extensions", "code", "lock", "other")


@dataclass(frozen=True)
class KindCount:
    kind: str
    """One of KINDS."""
    entries: int | None
    """None for a kind whose files are no entries."""
    files: int
    bytes: int


@dataclass(frozen=True)
class FolderCount:
    cache: str
    """inductor, triton or extensions"""
    path: str
    exists: bool
    bytes: int | None
    files: int | None
    oldest_at: float | None
    """Unix time, the target's clock."""
    newest_at: float | None
    complete: bool
    """False: the counting was stopped, or a folder could not be read; there is more."""


@dataclass(frozen=True)
class Devices:
    graphs: Mapping[str, int]
    """`cuda:0` or `cpu` -> compiled graphs. A graph of cuda:0 serves no other index."""
    unknown: int
    """Graphs whose code names no device."""
    complete: bool


@dataclass(frozen=True)
class User:
    pid: int
    command: str


@dataclass(frozen=True)
class Users:
    live_run: str | None
    live_uses: bool | None
    """Whether it was told to use these folders; None: not known."""
    processes: tuple[User, ...]
    """Whose environment names one of the folders."""


@dataclass(frozen=True)
class Against:
    snapshot: str
    error: str | None
    """Why it could not be compared; then all else is None or empty."""
    kinds: tuple[KindCount, ...]
    bytes: int | None
    files: int | None
    same: int | None
    """Files of the snapshot that the live cache holds, by name and size."""
    changed: int | None
    gone: int | None
    """Files of the snapshot that the live cache lacks."""
    new: int | None
    """Files of the live cache that the snapshot lacks."""


@dataclass(frozen=True)
class Census:
    folders: tuple[FolderCount, ...]
    """Without those that lie within another one."""
    nested: Mapping[str, str]
    kinds: tuple[KindCount, ...]
    devices: Devices | None
    users: Users
    launched_run: str | None
    """The live run, else the newest."""
    at_launch: CompileCache | None
    """The caches as that run found them."""
    seeded_from: str | None
    seeded_at: float | None
    against: tuple[Against, ...]
    counted_at: float | None
    seeding: str | None = None
    """The snapshot of a seeding that was cut short; the live caches are what it left."""

    @property
    def bytes(self) -> int:
        return sum(kind.bytes for kind in self.kinds)

    @property
    def files(self) -> int:
        return sum(kind.files for kind in self.kinds)

    @property
    def entries(self) -> int:
        return graphs_of(self.kinds)

    @property
    def complete(self) -> bool:
        return all(folder.complete for folder in self.folders)

    @property
    def newest_at(self) -> float | None:
        return max((folder.newest_at for folder in self.folders if folder.newest_at is not None), default=None)

    @property
    def oldest_at(self) -> float | None:
        return min((folder.oldest_at for folder in self.folders if folder.oldest_at is not None), default=None)


def graphs_of(kinds: tuple[KindCount, ...]) -> int:
    """What `orch status` counts as entries: compiled graphs."""
    return sum(kind.entries or 0 for kind in kinds if kind.kind == "fxgraph")


def parse_census(answer: Mapping[str, object]) -> Census:
    """`answer` of cache_show."""
    launch, seeded = as_mapping(answer.get("launch")), as_mapping(answer.get("seeded"))
    return Census(
        folders=tuple(_folder(name, as_mapping(raw)) for name, raw in as_mapping(answer.get("folders")).items()),
        nested={name: place for name, place in as_mapping(answer.get("nested")).items() if isinstance(place, str)},
        kinds=parse_kinds(answer.get("kinds")),
        devices=parse_devices(answer.get("devices")),
        users=_users(as_mapping(answer.get("users"))),
        launched_run=as_str(launch.get("run_id")),
        at_launch=parse_cache_stats(launch.get("cache")),
        seeded_from=as_str(seeded.get("snapshot")),
        seeded_at=as_float(seeded.get("at")),
        against=tuple(_against(name, as_mapping(raw)) for name, raw in as_mapping(answer.get("against")).items()),
        counted_at=as_float(answer.get("counted_at")),
        seeding=as_str(as_mapping(answer.get("seeding")).get("snapshot")),
    )


def parse_kinds(told: object) -> tuple[KindCount, ...]:
    """In the order of KINDS."""
    found = []
    for kind, value in as_mapping(told).items():
        raw = as_mapping(value)
        entries, files, size = (as_int(raw.get(name)) for name in ("entries", "files", "bytes"))
        if kind in KINDS and files is not None and size is not None:
            found.append(KindCount(kind, entries, files, size))
    return tuple(sorted(found, key=lambda row: KINDS.index(row.kind)))


def parse_devices(told: object) -> Devices | None:
    raw = as_mapping(told)
    if not isinstance(raw.get("graphs"), dict):
        return None
    counted = {name: as_int(value) for name, value in as_mapping(raw.get("graphs")).items()}
    graphs = {name: number for name, number in counted.items() if number is not None}
    return Devices(graphs, as_int(raw.get("unknown")) or 0, as_bool(raw.get("complete")) is True)


def _folder(name: str, raw: Mapping[str, object]) -> FolderCount:
    return FolderCount(
        cache=name,
        path=as_str(raw.get("path")) or "",
        exists=as_bool(raw.get("exists")) is True,
        bytes=as_int(raw.get("bytes")),
        files=as_int(raw.get("files")),
        oldest_at=as_float(raw.get("oldest_mtime")),
        newest_at=as_float(raw.get("newest_mtime")),
        complete=as_bool(raw.get("complete")) is True and not as_int(raw.get("unreadable")),
    )


def _users(raw: Mapping[str, object]) -> Users:
    processes = raw.get("processes")
    found = []
    for value in map(as_mapping, processes if isinstance(processes, list) else []):
        pid = as_int(value.get("pid"))
        if pid is not None:
            found.append(User(pid, " ".join(as_strs(value.get("argv")))))
    return Users(as_str(raw.get("live_run")), as_bool(raw.get("live_uses")), tuple(found))


def _against(name: str, raw: Mapping[str, object]) -> Against:
    counts = {key: as_int(raw.get(key)) for key in ("bytes", "files", "same", "changed", "gone", "new")}
    return Against(name, as_str(raw.get("error")), parse_kinds(raw.get("kinds")), **counts)
