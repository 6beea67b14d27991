"""A commit's content as a TreeSource: exactly what git has, whatever lies in the working tree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.agent.far.manifest import DIR, FILE, LINK, Entry, ManifestError, check_entries, file_mode, tree_hash
from orchestrator.agent.far.scan import BUILT_IN_EXCLUDES, is_excluded
from orchestrator.agent.git import GitState, list_commit, read_objects, resolve_revision
from orchestrator.agent.tree_source import READ_BYTES, TreeSource, unfit

GIT_LINK, GIT_SUBMODULE = 0o120000, 0o160000


def scan_git_revision(folder: Path, revision: str, exclude: Sequence[str] = ()) -> TreeSource:
    """Files of `revision` below the folder, without filters or line-end conversion. Blocks. Raises UsageError (git
    knows none of that name), TransferError."""
    commit = resolve_revision(folder, revision)
    label = f"{folder} at {commit[:12]}"
    patterns = [*BUILT_IN_EXCLUDES, *exclude]
    files = [file for file in list_commit(folder, commit) if not _is_left_out(file.path, patterns)]
    for file in files:
        if file.mode == GIT_SUBMODULE:
            raise unfit(label, ManifestError(file.path, "a submodule"))
    entries: dict[str, Entry] = {}
    objects: dict[str, str] = {}
    contents = read_objects(folder, [file.object_id for file in files], READ_BYTES)
    for file, pieces in zip(files, contents, strict=True):
        if file.mode == GIT_LINK:
            target = b"".join(pieces).decode("utf-8", "surrogateescape")
            entries[file.path] = Entry(file.path, LINK, 0o777, 0, "", target)
            continue
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        entries[file.path] = Entry(file.path, FILE, file_mode(file.mode), size, digest.hexdigest(), "")
        objects[digest.hexdigest()] = file.object_id
    for path in list(entries):
        while path := path.rpartition("/")[0]:
            entries[path] = Entry(path, DIR, 0o755, 0, "", "")
    try:
        checked = check_entries(entries.values())
    except ManifestError as error:
        raise unfit(label, error) from error

    def open_blobs(wanted: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        yield from zip(wanted, read_objects(folder, [objects[sha256] for sha256 in wanted], READ_BYTES), strict=True)

    git = GitState(commit, branch=revision if revision != commit else None, dirty_files=())
    return TreeSource(label, checked, tree_hash(checked), git, open_blobs)


def _is_left_out(path: str, patterns: Sequence[str]) -> bool:
    parts = path.split("/")
    return any(is_excluded("/".join(parts[: count + 1]), patterns) for count in range(len(parts)))
