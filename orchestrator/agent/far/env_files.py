"""The files of an environment against what each package's RECORD says of them.

Rule: bounded in time and bytes, and what was not looked at is counted, never taken for sound. Smallest files first:
what somebody edits by hand is small, and is found before the time is over. `__pycache__` and .pyc are nobody's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import threading
import time

from .env_dists import LOOSE_BY_TOOLS, installed_at, records
from .regular import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, Dict, List, Tuple

    Facts = Dict[str, Any]

MAX_TOLD = 200
READ_BYTES = 1 << 20
THREADS = 4
CLOCK_S = 2.0
"""RECORD is written last; a file may be so much newer than it and still be of the same installation."""


class TooLateError(Exception):
    pass


class Owners:
    """Path -> the packages whose RECORD names it."""

    def __init__(self, packages: List[Facts]) -> None:
        self.rows: List[Tuple[str, str, str, int | None, float]] = []
        self.of: Dict[str, List[str]] = {}
        for package in packages:
            all_rows, package["unread_rows"] = records(package)
            rows = [row for row in all_rows if not _is_bytecode(row[0])]
            written_at = installed_at(str(package["info"]))
            package["files"] = len(rows)
            for path, digest, size in rows:
                self.of.setdefault(path, []).append(package["name"])
                self.rows.append((path, package["name"], digest, size, written_at))

    def shared(self) -> List[Facts]:
        """Files that several packages claim: removing one takes them from the other. {packages, files, example}"""
        groups: Dict[Tuple[str, ...], List[str]] = {}
        for path, owners in self.of.items():
            if len(set(owners)) > 1 and not path.endswith(("__init__.py", "py.typed")):
                groups.setdefault(tuple(sorted(set(owners))), []).append(path)
        return [
            {"packages": list(owners), "files": len(paths), "example": min(paths)}
            for owners, paths in sorted(groups.items())
        ][:MAX_TOLD]


def verify(owners: Owners, mode: str, deadline_s: float, max_bytes: int, check: Callable[[], None]) -> Facts:
    """mode `newer`: sizes of all, hashes only of files that are newer than their RECORD; `all`: every hash.

    {changed: [{path, package, why}], missing: [{path, package}], counts: changed_files, missing_files, files, hashed,
    bytes_hashed, not_hashed (the time or the bytes were over), by_age (of the recorded size and no newer than their
    RECORD: not hashed in mode `newer`), complete}. A list ends at MAX_TOLD; its count does not.
    """
    found = _Found()
    to_hash: List[Tuple[int, str, str, str]] = []
    for number, (path, package, digest, size, written_at) in enumerate(owners.rows):
        if number % 1024 == 0:
            check()
        found.files += 1
        try:
            seen = os.stat(path)
        except OSError:
            found.add_missing(path, package)
            continue
        if not stat.S_ISREG(seen.st_mode):
            if digest or size is not None:
                found.add_changed(path, package, "it is no regular file")
        elif size is not None and seen.st_size != size:
            found.add_changed(path, package, "%d bytes instead of %d" % (seen.st_size, size))
        elif digest and (mode == "all" or seen.st_mtime > written_at + CLOCK_S):
            to_hash.append((seen.st_size, path, package, digest))
        elif digest:
            found.by_age += 1
    to_hash.sort()
    _hash_all(to_hash, found, time.monotonic() + deadline_s, max_bytes, check)
    return found.facts()


def loose_files(folder: str, owners: Owners, check: Callable[[], None]) -> List[str]:
    """Python and shared objects below site-packages that no package claims: copied in by hand. At most MAX_TOLD."""
    found: List[str] = []
    for top, inner, names in os.walk(folder):
        check()
        inner[:] = [
            name for name in inner
            if name != "__pycache__" and not name.startswith("~") and not name.endswith((".dist-info", ".egg-info"))
        ]  # fmt: skip
        for name in names:
            path = os.path.join(top, name)
            by_tool = top == folder and (name in LOOSE_BY_TOOLS or name.endswith((".pth", ".egg-link")))
            if name.endswith((".py", ".so")) and path not in owners.of and not by_tool:
                found.append(path)
                if len(found) >= MAX_TOLD:
                    return found
    return found


class _Found:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed: List[Facts] = []
        self.missing: List[Facts] = []
        self.changed_files = self.missing_files = self.files = 0
        self.hashed = self.bytes_hashed = self.not_hashed = self.by_age = 0

    def add_missing(self, path: str, package: str) -> None:
        self.missing_files += 1
        if len(self.missing) < MAX_TOLD:
            self.missing.append({"path": path, "package": package})

    def add_changed(self, path: str, package: str, why: str) -> None:
        with self.lock:
            self.changed_files += 1
            if len(self.changed) < MAX_TOLD:
                self.changed.append({"path": path, "package": package, "why": why})

    def facts(self) -> Facts:
        names = ("changed_files", "missing_files", "files", "hashed", "bytes_hashed", "not_hashed", "by_age")
        told: Facts = {name: getattr(self, name) for name in names}
        self.changed.sort(key=lambda one: str(one["path"]))
        return dict(told, changed=self.changed, missing=self.missing, complete=self.not_hashed == 0)


def _hash_all(
    rows: List[Tuple[int, str, str, str]], found: _Found, until: float, max_bytes: int, check: Callable[[], None]
) -> None:
    """hashlib lets other threads go on, so a second core helps."""
    waiting = iter(rows)
    stopped = threading.Event()

    def work() -> None:
        while True:
            with found.lock:
                row = next(waiting, None)
                if row is None:
                    return
                over = stopped.is_set() or time.monotonic() > until or found.bytes_hashed + row[0] > max_bytes
                if over:
                    found.not_hashed += 1
                    continue
                found.bytes_hashed += row[0]
                found.hashed += 1
            _, path, package, digest = row
            try:
                why = _mismatch(path, digest, until, stopped)
            except TooLateError:
                with found.lock:
                    found.hashed -= 1
                    found.not_hashed += 1
                continue
            if why is not None:
                found.add_changed(path, package, why)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, os.cpu_count() or 1))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                check()
    finally:
        stopped.set()


def _mismatch(path: str, digest: str, until: float, stopped: threading.Event) -> str | None:
    """None: it is as recorded, or recorded in a way that nobody can check. Raises TooLateError."""
    name, _, wanted = digest.partition("=")
    try:
        sum_ = hashlib.new(name)
    except (ValueError, TypeError):
        return None
    try:
        with open_regular(path) as stream:
            while True:
                data = stream.read(READ_BYTES)
                if not data:
                    break
                if stopped.is_set() or time.monotonic() > until:
                    raise TooLateError(path)
                sum_.update(data)
    except OSError as error:
        return "cannot be read: %s" % error.strerror
    got = base64.urlsafe_b64encode(sum_.digest()).rstrip(b"=").decode("ascii")
    return None if got == wanted.rstrip("=") else "its contents are not as installed"


def _is_bytecode(path: str) -> bool:
    return path.endswith((".pyc", ".pyo")) or "/__pycache__/" in path
