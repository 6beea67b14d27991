"""What a push takes its files from: a folder as it is, or a commit.

Rule: the manifest is made by reading every byte once; while sending, the bytes are hashed again, so that a file
that changed in between is noticed here and never arrives under a wrong name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.far.manifest import FILE, Entry, ManifestError, tree_hash
from orchestrator.agent.far.scan import BUILT_IN_EXCLUDES, scan
from orchestrator.agent.git import GitState, describe_git
from orchestrator.errors import TransferError

READ_BYTES = 128 * 1024


@dataclass(frozen=True)
class TreeSource:
    label: str
    """For messages: the folder, or `folder at commit`."""
    entries: tuple[Entry, ...]
    tree_hash: str
    git: GitState | None
    open_blobs: Callable[[Sequence[str]], Iterator[tuple[str, Iterator[bytes]]]]
    """Contents by sha256, in the order asked for, each in pieces. Blocks. Not verified."""

    def read_blobs(self, wanted: Sequence[str]) -> Iterator[bytes]:
        """The contents one after the other. Blocks. Raises TransferError when one is not what it was."""
        for sha256, pieces in self.open_blobs(wanted):
            digest = hashlib.sha256()
            for piece in pieces:
                digest.update(piece)
                yield piece
            if digest.hexdigest() != sha256:
                names = [entry.path for entry in self.entries if entry.sha256 == sha256]
                raise changed(self.label, names[0])


def scan_folder(folder: Path, exclude: Sequence[str] = ()) -> TreeSource:
    """The folder as it is now, without what the patterns (and the built-in ones) say. Blocks. Raises TransferError."""
    if not folder.is_dir():
        raise TransferError(
            f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}",
            way_out="correct `folder:` of the payload in the inventory",
        )
    try:
        entries = scan(str(folder), [*BUILT_IN_EXCLUDES, *exclude])
    except (ManifestError, OSError) as error:
        raise unfit(str(folder), error) from error
    paths = {entry.sha256: folder / entry.path for entry in entries if entry.kind == FILE}

    def open_blobs(wanted: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        for sha256 in wanted:
            yield sha256, _read(str(folder), paths[sha256], folder)

    return TreeSource(str(folder), entries, tree_hash(entries), describe_git(folder), open_blobs)


def unfit(label: str, error: Exception) -> TransferError:
    return TransferError(
        f"{label} cannot be sent as it is",
        evidence=str(error),
        way_out="remove it, or name it under `exclude` of the payload in the inventory",
    )


def changed(label: str, name: str) -> TransferError:
    return TransferError(
        f"{label}: {name} changed while it was read; nothing over there was touched",
        way_out="try again once nobody writes to it",
    )


def _read(label: str, path: Path, folder: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as stream:
            while data := stream.read(READ_BYTES):
                yield data
    except OSError as error:
        raise changed(label, str(path.relative_to(folder))) from error
