"""The records of plays on this machine: $XDG_STATE_HOME/orch/plays/<playbook>/<play id>.jsonl, one JSON object a line.

Rule: a line is on disk before what it announces is begun; files are this user's only. One play of a playbook at a time:
a lock that its process holds, and that is free again however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from orchestrator.errors import BusyError, OrchError

KEPT = 100
"""Records of a playbook; the oldest go first."""
MAX_BYTES = 64 * 1024 * 1024


class PlayStore:
    """Of one playbook, by its path. As a context manager it holds the lock."""

    def __init__(self, playbook: Path) -> None:
        key = hashlib.sha256(os.fsencode(playbook)).hexdigest()[:16]
        self._playbook = playbook
        self.folder = _state_folder() / f"{playbook.stem[:40]}-{key}"
        self._lock: int | None = None

    def __enter__(self) -> PlayStore:
        """Raises BusyError naming the holder, OrchError where records cannot be kept."""
        _make_private(self.folder)
        try:
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(self.folder / "lock", error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 4096, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise BusyError(
                f"{self._playbook.name} is being played already; nothing was begun",
                evidence=holder,
                way_out="wait for it to end; a play whose process dies frees the lock by itself",
            ) from error
        self._lock = handle
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def say_holder(self, sentence: str) -> None:
        """What somebody who finds the lock held is told."""
        assert self._lock is not None
        with contextlib.suppress(OSError):  # a full disk: that the lock is held does not depend on it
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, sentence.encode("utf-8", "replace") + b"\n", 0)

    def latest(self) -> list[bytes]:
        """The lines of the newest record; none: it was never played. Raises OrchError."""
        found = self._records()
        if not found:
            return []
        try:
            with found[-1].open("rb") as stream:
                return stream.read(MAX_BYTES).splitlines()
        except OSError as error:
            raise _unusable(found[-1], error) from error

    def record(self, play_id: str) -> PlayRecord:
        """A new one, or one that is gone on with."""
        for old in self._records()[:-KEPT]:
            with contextlib.suppress(OSError):
                old.unlink()
        return PlayRecord(self.folder / f"{play_id}.jsonl")

    def _records(self) -> list[Path]:
        """Oldest first: ids begin with the time."""
        return sorted(self.folder.glob("*.jsonl")) if self.folder.is_dir() else []


class PlayRecord:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: Mapping[str, object]) -> None:
        """On disk when this returns. Raises OrchError: then nothing may be begun."""
        data = json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self.path, flags, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = b"\n" + data  # torn by a crash
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            if not size:
                _sync(self.path.parent)
        except OSError as error:
            raise OrchError(
                f"{self.path}: the record of the play cannot be written; the play stops here",
                evidence=str(error),
                way_out="orch play FILE   goes on once it can be written",
            ) from error


def _state_folder() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "orch" / "plays"


def _unusable(path: Path, error: OSError) -> OrchError:
    return OrchError(
        f"{path} cannot be opened; nothing was begun",
        evidence=str(error),
        way_out="move it aside: what the last play did is in it",
    )


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise OrchError(
            f"{folder}: the records of plays cannot be kept there", evidence=str(error), way_out="set XDG_STATE_HOME"
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise OrchError(
            f"{folder} is not a folder that only you can enter; it would hold the records of plays",
            evidence=f"mode {stat.filemode(facts.st_mode)}, owner uid {facts.st_uid}",
            way_out=f"chmod 700 {folder}   when it is yours",
        )


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
