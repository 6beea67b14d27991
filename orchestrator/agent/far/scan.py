"""A folder on disk -> manifest entries. Runs on both sides; reads every file once.

Rule: what cannot be moved faithfully is an error that names it, never left out silently; what is left out is
what a pattern says.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import stat

from .manifest import DIR, FILE, LINK, Entry, ManifestError, check_entries, check_link, check_path, file_mode

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Callable, List, Sequence, Tuple

BUILT_IN_EXCLUDES = (
    ".git",
    "__pycache__",
    "*.pyc",
    ".venv",
    ".DS_Store",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
)
READ_BYTES = 256 * 1024


def is_excluded(path: str, patterns: Sequence[str]) -> bool:
    """A pattern without a slash is matched with the last name, one with a slash with the whole path."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(path if "/" in pattern else name, pattern.strip("/")) for pattern in patterns)


def scan(
    folder: str,
    patterns: Sequence[str],
    *,
    check: Callable[[], None] = lambda: None,
) -> Tuple[Entry, ...]:
    """Raises OSError, ManifestError. `check` is called between reads and may raise."""

    def finish(entry: Entry) -> Entry:
        if entry.kind != FILE:
            return entry
        sha256, size = hash_file(os.path.join(folder, entry.path), check=check)
        return entry._replace(sha256=sha256, size=size)

    return check_entries(finish(entry) for entry in walk(folder, patterns, check=check))


def scan_fit(
    folder: str, patterns: Sequence[str], *, check: Callable[[], None] = lambda: None
) -> Tuple[Tuple[Entry, ...], List[str]]:
    """(entries, names of what cannot be moved): for folders that a training made as it liked.

    A link with an absolute target below the folder becomes a relative one; other links that lead out, FIFOs, sockets
    and names with control characters are left out and named. A file that is being appended
    to counts as what it held when it was opened. Raises OSError, ManifestError.
    """
    entries, odd = walk_fit(folder, patterns, check=check)
    for at, entry in enumerate(entries):
        if entry.kind == FILE:
            sha256, size = hash_file(os.path.join(folder, entry.path), growing=True, check=check)
            entries[at] = entry._replace(sha256=sha256, size=size)
    return check_entries(entries), odd


def walk_fit(
    folder: str, patterns: Sequence[str], *, check: Callable[[], None] = lambda: None
) -> Tuple[List[Entry], List[str]]:
    """As scan_fit, without hashes. Raises OSError."""
    odd: List[str] = []
    entries: List[Entry] = []
    for entry in walk(folder, patterns, odd=odd, check=check):
        if entry.kind == LINK:
            entry = entry._replace(target=_inward(folder, entry))
            try:
                check_link(entry.path, entry.target)
            except ManifestError:
                odd.append(entry.path)
                continue
        entries.append(entry)
    return entries, sorted(odd)


def _inward(folder: str, entry: Entry) -> str:
    """The link's target, relative if it is an absolute path below the folder."""
    if entry.target.startswith(folder.rstrip("/") + "/"):
        return os.path.relpath(entry.target, os.path.dirname(os.path.join(folder, entry.path)))
    return entry.target


def walk(
    folder: str,
    patterns: Sequence[str],
    *,
    odd: List[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> List[Entry]:
    """Entries without hashes. What cannot be an entry goes to `odd`, if given; else raises ManifestError."""
    entries: List[Entry] = []
    pending = [""]
    while pending:
        prefix = pending.pop()
        check()
        with os.scandir(os.path.join(folder, prefix)) as listing:
            found = list(listing)
        for item in found:
            path = prefix + item.name
            if patterns and is_excluded(path, patterns):
                continue
            try:
                check_path(path)
                entries.append(_entry(path, item))
            except ManifestError:
                if odd is None:
                    raise
                odd.append(path)
                continue
            if entries[-1].kind == DIR:
                pending.append(path + "/")
    return entries


def hash_file(path: str, *, growing: bool = False, check: Callable[[], None] = lambda: None) -> Tuple[str, int]:
    """(sha256, size). growing: it may be appended to meanwhile. Raises OSError, and ManifestError when it changes."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):  # opening a pipe would else wait for a writer
            raise OSError(errno.EINVAL, "no regular file", path)
        left = before.st_size
        # One buffer for all: a fresh one each time costs its page faults, twice the reading itself.
        buffer = memoryview(bytearray(min(left, READ_BYTES)))
        while left:
            got = os.readv(descriptor, [buffer[:left]])
            if not got:
                break
            digest.update(buffer[:got])
            left -= got
            check()
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if left or not (same or (growing and after.st_size >= before.st_size)):
        raise ManifestError(path, "changed while it was read")
    return digest.hexdigest(), before.st_size


def _entry(path: str, item: os.DirEntry[str]) -> Entry:
    facts = item.stat(follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        return Entry(path, LINK, 0o777, 0, "", os.readlink(item.path))
    if stat.S_ISDIR(facts.st_mode):
        return Entry(path, DIR, 0o755, 0, "", "")
    if not stat.S_ISREG(facts.st_mode):
        raise ManifestError(path, "neither file, link nor folder")
    return Entry(path, FILE, file_mode(facts.st_mode), facts.st_size, "", "")
