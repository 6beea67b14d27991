"""Wheels on this machine: found in folders, fetched with pip, and put together as a tree to send.

Rule: nothing is taken whose sha256 the lock does not name. A fetched wheel is kept in the user's cache, so that the
next environment with it fetches nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.far.manifest import DIR, FILE, Entry, check_entries, tree_hash
from orchestrator.agent.tree_source import READ_BYTES, TreeSource, changed
from orchestrator.errors import InventoryError, TransferError

UV_LOCK = Path(__file__).with_name("uv.txt")


@dataclass(frozen=True)
class Wheel:
    path: Path
    sha256: str
    size_bytes: int


def read_lock_text(file: Path) -> str:
    """Raises InventoryError."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(
            f"the lock {file} cannot be read",
            evidence=str(error),
            way_out="see `environments:` of the payload in the inventory, and docs/environments.md",
        ) from error


def cache_folder() -> Path:
    """Made if need be. Raises TransferError."""
    top = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = top / "orch" / "wheels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TransferError(
            f"wheels cannot be kept in {folder}",
            evidence=str(error),
            way_out="set XDG_CACHE_HOME to a folder that you may write to",
        ) from error
    return folder


def wheel_names(folder: Path) -> list[str]:
    """Raises TransferError."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.suffix == ".whl")
    except OSError as error:
        raise TransferError(f"{folder} cannot be looked through for wheels", evidence=str(error)) from error


def read_wheel(path: Path) -> Wheel:
    """Hashes it. Blocks. Raises TransferError."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while data := stream.read(1 << 20):
                digest.update(data)
        return Wheel(path, digest.hexdigest(), path.stat().st_size)
    except OSError as error:
        raise TransferError(f"{path} cannot be read", evidence=str(error)) from error


async def fetch(
    requirement: str, platforms: Sequence[str], python_version: str, indexes: Sequence[str], folder: Path
) -> str | None:
    """A requirement line with hashes -> its wheel in `folder`, for another platform than this one. Gives what pip says
    when there is none.

    pip chooses among what the indexes have and checks the hashes. It is told the indexes in its environment: an address
    may hold a password, which every process of this machine could read in its arguments.
    """
    try:
        # Beside its place, which it takes by rename: another orch may be fetching the same. pip's own files go there
        # too, for /tmp is often small.
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as scratch:
            wanted = Path(scratch) / "requirements.txt"
            wanted.write_text(requirement + "\n", encoding="utf-8")
            argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
            argv += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--implementation", "cp"]
            argv += ["--python-version", python_version, "--dest", scratch, "--requirement", str(wanted)]
            for platform in platforms:
                argv += ["--platform", platform]
            environment = {**os.environ, "TMPDIR": scratch}
            if indexes:
                environment["PIP_INDEX_URL"] = indexes[0]
                environment["PIP_EXTRA_INDEX_URL"] = " ".join(indexes[1:])
            code, said = await _run(argv, environment)
            _place(Path(scratch), folder)
    except OSError as error:
        return str(error)
    return None if code == 0 else _without_passwords(said)


def _place(scratch: Path, folder: Path) -> None:
    for wheel in scratch.glob("*.whl"):
        wheel.replace(folder / wheel.name)


async def _run(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    try:
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode("utf-8", "replace").strip()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _without_passwords(text: str) -> str:
    return re.sub(r"//[^/\s@]+@", "//", text)


def wheel_tree(label: str, files: Mapping[str, Wheel], texts: Mapping[str, bytes]) -> TreeSource:
    """files, texts: path in the tree -> content. Raises TransferError when a file changes while it is sent."""
    entries = [Entry(path, FILE, 0o644, wheel.size_bytes, wheel.sha256, "") for path, wheel in files.items()]
    written = {hashlib.sha256(text).hexdigest(): text for text in texts.values()}
    for path, text in texts.items():
        entries.append(Entry(path, FILE, 0o644, len(text), hashlib.sha256(text).hexdigest(), ""))
    folders = {path.rpartition("/")[0] for path in files} - {""}
    entries += [Entry(folder, DIR, 0o755, 0, "", "") for folder in folders]
    checked = check_entries(entries)
    paths = {wheel.sha256: wheel.path for wheel in files.values()}

    def open_blobs(wanted: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        for sha256 in wanted:
            yield sha256, iter([written[sha256]]) if sha256 in written else _pieces(label, paths[sha256])

    return TreeSource(label, checked, tree_hash(checked), None, open_blobs)


def _pieces(label: str, path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as stream:
            while data := stream.read(READ_BYTES):
                yield data
    except OSError as error:
        raise changed(label, path.name) from error
