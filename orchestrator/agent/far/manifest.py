"""What a tree holds, as a list of entries with one canonical form and one hash. Pure.

Rule: `check_entries` runs on both sides before anything is written: relative names only, every parent a folder
of this very tree, links that stay inside. So nothing that passed can be written outside or through a link.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

FILE, LINK, DIR = "file", "link", "dir"
MODES = {FILE: (0o644, 0o755), LINK: (0o777,), DIR: (0o755,)}
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_LISTING_BYTES = 64 * 1024 * 1024

_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")
_NO_NAMES = frozenset(("", ".", ".."))


class ManifestError(Exception):
    """path: the entry that cannot be; str(): why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__("%r: %s" % (path, why))
        self.path = path
        self.why = why


class Entry(NamedTuple):
    path: str
    """Relative, with slashes."""
    kind: str
    mode: int
    """Normalised: files 0644 or 0755, folders 0755, links 0777."""
    size: int
    """Bytes; 0 for what is not a file."""
    sha256: str
    """Of a file; else empty."""
    target: str
    """Of a link; else empty."""


def file_mode(mode: int) -> int:
    """Only whether its owner may execute it counts: the rest is the umask of whoever checked it out."""
    return 0o755 if mode & 0o100 else 0o644


def sort_entries(entries: Iterable[Entry]) -> Tuple[Entry, ...]:
    """Bytewise, so that every locale and file system gives the same order."""
    return tuple(sorted(entries, key=lambda entry: entry.path.encode("utf-8", "surrogateescape")))


def tree_hash(entries: Sequence[Entry]) -> str:
    """sha256 of the canonical form."""
    return hashlib.sha256(canonical(entries)).hexdigest()


def canonical(entries: Sequence[Entry]) -> bytes:
    return json.dumps([list(entry) for entry in sort_entries(entries)], separators=(",", ":")).encode("ascii")


def unique_blobs(entries: Sequence[Entry]) -> List[Tuple[str, int]]:
    """(sha256, size) of every content once, in the order of the manifest. Both sides count in this list."""
    return list({entry.sha256: (entry.sha256, entry.size) for entry in entries if entry.kind == FILE}.values())


def pack(entries: Sequence[Entry]) -> bytes:
    return zlib.compress(canonical(entries), 6)


def unpack(data: bytes) -> Tuple[Entry, ...]:
    """Raises ManifestError for anything that `pack` of checked entries cannot have made."""
    return check_entries(parse(json_unpack(data)))


def json_pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode("ascii"), 6)


def json_unpack(data: bytes) -> Any:
    """Bounded. Raises ManifestError."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, MAX_LISTING_BYTES)
        if not inflater.eof:
            raise ManifestError("", "the list is too long or cut")
        return json.loads(text.decode("ascii"))
    except (zlib.error, ValueError) as error:
        raise ManifestError("", "not a list: %s" % error) from error


def parse(rows: Any) -> List[Entry]:
    """A listing's rows -> entries. Raises ManifestError."""
    if not isinstance(rows, list):
        raise ManifestError("", "not a list")
    entries = []
    for row in rows:
        try:
            path, kind, mode, size, sha256, target = row
        except (TypeError, ValueError) as error:
            raise ManifestError("", "not an entry: %r" % (row,)) from error
        if not all(isinstance(text, str) for text in (path, kind, sha256, target)):
            raise ManifestError(str(path), "not text")
        if not (type(mode) is int and type(size) is int):
            raise ManifestError(path, "not a number")
        entries.append(Entry(path, kind, mode, size, sha256, target))
    return entries


def check_entries(entries: Iterable[Entry]) -> Tuple[Entry, ...]:
    """Sorted. Raises ManifestError."""
    found = sort_entries(entries)
    kinds: Dict[str, str] = {}
    for entry in found:
        check_path(entry.path)
        if entry.path in kinds:
            raise ManifestError(entry.path, "listed twice")
        kinds[entry.path] = entry.kind
        if entry.kind not in MODES or entry.mode not in MODES[entry.kind]:
            raise ManifestError(entry.path, "neither file, link nor folder, or a mode that cannot be")
        _check_content(entry)
    for entry in found:
        parent = entry.path.rpartition("/")[0]
        if parent and kinds.get(parent) != DIR:
            raise ManifestError(entry.path, "its parent is not a folder of this tree")
        if entry.kind == LINK:
            check_link(entry.path, entry.target)
    return found


def check_path(path: str) -> None:
    """Raises ManifestError."""
    try:
        raw = path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ManifestError(path, "the name is not UTF-8") from error
    if _CONTROL.search(path):
        raise ManifestError(path, "a control character in a name")
    names = path.split("/")
    if not _NO_NAMES.isdisjoint(names):
        raise ManifestError(path, "not a plain relative name")
    too_long = len(raw) > MAX_NAME_BYTES and any(len(name.encode("utf-8")) > MAX_NAME_BYTES for name in names)
    if len(raw) > MAX_PATH_BYTES or too_long:
        raise ManifestError(path, "the name is too long")


def check_link(path: str, target: str) -> None:
    """A link may climb only at its start, and not above the tree: then it cannot leave it, whatever lies on its way.

    (`a/b/../..` is refused although it looks harmless: if `a/b` is itself a link, it climbs from elsewhere.)
    Raises ManifestError.
    """
    if not target or target.startswith("/"):
        raise ManifestError(path, "a link to %r, which is not relative" % target)
    try:
        target.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ManifestError(path, "the link's target is not UTF-8") from error
    if _CONTROL.search(target):
        raise ManifestError(path, "a control character in the link's target")
    names = [name for name in target.split("/") if name not in ("", ".")]
    climbs = 0
    while climbs < len(names) and names[climbs] == "..":
        climbs += 1
    if climbs > path.count("/") or ".." in names[climbs:]:
        raise ManifestError(path, "a link to %r, which leaves the folder" % target)


def _check_content(entry: Entry) -> None:
    if entry.kind == FILE:
        if entry.size < 0 or len(entry.sha256) != 64 or entry.sha256.strip("0123456789abcdef") or entry.target:
            raise ManifestError(entry.path, "a file without a proper size and hash")
    elif entry.size or entry.sha256 or (entry.target and entry.kind != LINK):
        raise ManifestError(entry.path, "content where none can be")
