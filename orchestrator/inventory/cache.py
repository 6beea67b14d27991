"""Keeps what an inventory file was read as: checking it takes pydantic and YAML, most of a short command's time.

Rule: never a change of behaviour. The same text at the same place for the same home, read by the same orch, gives what
was kept; any doubt, or any failure here, means that the file is read afresh.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from orchestrator.inventory import snapshot
from orchestrator.inventory.model import Inventory

VARIABLE = "XDG_CACHE_HOME"
MAX_BYTES = 4 * 1024 * 1024


def recall(text: str, path: Path, home: Path) -> Inventory | None:
    """What `keep` was given for the same question; None: unknown."""
    try:
        folder = _folder(home)
        if not _is_private(folder.lstat(), stat.S_ISDIR):
            return None
        handle = os.open(_slot(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not _is_private(os.fstat(handle), stat.S_ISREG):
                return None
            head, _, body = stream.read(MAX_BYTES).partition(b"\n")
        if head != _head(text, path, home, body):
            return None
        return snapshot.restore(json.loads(body))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(inventory: Inventory, text: str, path: Path, home: Path) -> None:
    """For the next command. Nothing, where it cannot be kept, or would not come back as it is."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        body = json.dumps(snapshot.plain(inventory), separators=(",", ":")).encode("ascii")
        if snapshot.restore(json.loads(body)) != inventory:
            return
        folder = _folder(home)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder.lstat(), stat.S_ISDIR):
            return
        final = _slot(folder, path)
        draft = final.with_name(f".{final.name}.{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_head(text, path, home, body) + b"\n" + body)
            draft.replace(final)
        except OSError:
            draft.unlink(missing_ok=True)


def _folder(home: Path) -> Path:
    given = os.environ.get(VARIABLE, "")
    return (Path(given) if given.startswith("/") else home / ".cache") / "orch"


def _slot(folder: Path, path: Path) -> Path:
    """One of 16 files: their number must not grow with the inventories that were ever used."""
    return folder / f"inventory-{hashlib.sha256(os.fsencode(path)).hexdigest()[0]}.json"


def _head(text: str, path: Path, home: Path, body: bytes) -> bytes:
    """Hash of everything that the answer depends on, and of the answer."""
    digest = hashlib.sha256()
    readers = [source.read_bytes() for source in sorted(Path(__file__).parent.glob("*.py"))]
    place = [os.fsencode(path), os.fsencode(home), sys.version.encode(), os.fsencode(sys.prefix)]
    for part in (text.encode(), *place, *readers, body):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest().encode("ascii")


def _is_private(facts: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(facts.st_mode) and facts.st_uid == os.getuid() and not stat.S_IMODE(facts.st_mode) & 0o077
