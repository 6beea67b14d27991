"""The compile cache as the agent's cache_stats tells of it.

Rule: pure; a folder that is not there holds nothing that is known: None, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str


@dataclass(frozen=True)
class CacheFolder:
    name: str
    """As it was asked for: the environment variable that names it."""
    path: str
    exists: bool
    bytes: int | None
    files: int | None
    entries: int | None
    """Compiled graphs; None where none are kept."""
    newest_at: float | None
    """Unix time at which the newest file was written."""
    complete: bool
    """False: the counting was stopped, and there is more."""
    unreadable: int
    """Folders that could not be listed."""
    new_files: int | None = None
    """Made or written to since the run was launched, without lock files; None: not counted."""
    new_graphs: int | None = None
    oldest_at: float | None = None
    """Unix time at which the oldest file was written."""


@dataclass(frozen=True)
class CompileCache:
    folders: tuple[CacheFolder, ...]
    counted_at: float | None = None
    """Unix time, the target's clock."""

    @property
    def bytes(self) -> int | None:
        """All folders together; one that lies within another is counted once."""
        return _sum(folder.bytes for folder in self._outermost())

    @property
    def files(self) -> int | None:
        return _sum(folder.files for folder in self._outermost())

    @property
    def entries(self) -> int | None:
        return _sum(folder.entries for folder in self._outermost())

    @property
    def new_files(self) -> int | None:
        return _sum(folder.new_files for folder in self._outermost())

    @property
    def new_graphs(self) -> int | None:
        return _sum(folder.new_graphs for folder in self._outermost())

    @property
    def newest_at(self) -> float | None:
        return max((folder.newest_at for folder in self.folders if folder.newest_at is not None), default=None)

    @property
    def oldest_at(self) -> float | None:
        return min((folder.oldest_at for folder in self.folders if folder.oldest_at is not None), default=None)

    @property
    def complete(self) -> bool:
        return all(folder.complete and not folder.unreadable for folder in self.folders)

    def _outermost(self) -> list[CacheFolder]:
        paths = [folder.path.rstrip("/") + "/" for folder in self.folders]
        return [
            folder
            for at, folder in enumerate(self.folders)
            if not any(
                paths[at].startswith(other) and (other != paths[at] or number < at)
                for number, other in enumerate(paths)
                if number != at
            )
        ]


def parse_cache_stats(answer: object) -> CompileCache | None:
    """`answer`: the header of cache_stats, or the same kept in a record. None when it is not that."""
    folders = as_mapping(as_mapping(answer).get("folders"))
    found = []
    for name, value in folders.items():
        raw = as_mapping(value)
        path = as_str(raw.get("path"))
        if path is not None:
            found.append(
                CacheFolder(
                    name=name,
                    path=path,
                    exists=as_bool(raw.get("exists")) is True,
                    bytes=as_int(raw.get("bytes")),
                    files=as_int(raw.get("files")),
                    entries=as_int(raw.get("entries")),
                    newest_at=as_float(raw.get("newest_mtime")),
                    complete=as_bool(raw.get("complete")) is True,
                    unreadable=as_int(raw.get("unreadable")) or 0,
                    new_files=as_int(raw.get("new_files")),
                    new_graphs=as_int(raw.get("new_graphs")),
                    oldest_at=as_float(raw.get("oldest_mtime")),
                )
            )
    return CompileCache(tuple(found), as_float(as_mapping(answer).get("counted_at"))) if found else None


def _sum(values: Iterable[int | None]) -> int | None:
    """None when nothing is known at all."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
