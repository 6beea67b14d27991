"""Which code a run starts from: the release as it was pushed, what was edited in it since, and files that the inventory
expects to be certain ones."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Callable, Dict, Iterable

from .manifest import DIR, FILE, LINK, Entry, ManifestError
from .records import Record
from .regular import open_regular
from .release_store import read_record, record_path
from .scan import BUILT_IN_EXCLUDES, hash_file, walk

MAX_LISTED = 5000
"""Files of a release beyond which only the hash of the whole tree is kept."""
READ_BYTES = 256 * 1024
CODE = (
    *(".py", ".pyx", ".so", ".pth", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".sh", ".yaml", ".yml"),
    *(".toml", ".cfg", ".ini"),
)
"""Of what lies in a release and was not pushed, only files with these endings count: a training may write others."""
MISSING = "missing"

Check = Callable[[], None]


def release_facts(release: str) -> Record | None:
    """Of its record beside it. None: it is no release of ours. Raises OSError, ValueError."""
    kept = _kept(release)
    if kept is None:
        return None
    entries = [Entry(*row) for row in kept.get("entries") or []]
    files = {entry.path: file_token(entry) for entry in entries if entry.kind != DIR}
    provenance = kept.get("provenance") or {}
    about = {name: kept.get(name) for name in ("tree_hash", "bytes")}
    about.update(files=kept.get("files"), git=provenance.get("git"), payload=provenance.get("payload"))
    return dict(about, listing=files if len(files) <= MAX_LISTED else None)


def release_record(release: str) -> Record | None:
    """Who pushed it and when: no part of what it is. Raises OSError, ValueError."""
    kept = _kept(release)
    if kept is None:
        return None
    by = (kept.get("provenance") or {}).get("deployed_by")
    return {"path": release, "pushed_at": kept.get("pushed_at"), "deployed_by": by}


def _kept(release: str) -> Record | None:
    if not os.path.isfile(record_path(release)):
        return None
    with open(record_path(release), encoding="ascii") as stream:
        kept: Record = json.load(stream)
    return kept


def file_token(entry: Entry) -> str:
    """What a file is, as one word: its sha256, with `+x` when it may be executed; `-> target` of a link."""
    if entry.kind == LINK:
        return "-> " + entry.target
    return entry.sha256 + ("+x" if entry.mode & 0o100 else "")


def edited(release: str, check: Check = lambda: None) -> Dict[str, str] | None:
    """Path -> what is on the disk where it is not what was pushed, or `missing`. {}: nothing was touched. What the
    deploy left out (`exclude`: what a training writes there) is no edit.

    None: it is no release of ours. Raises OSError, OpError, and what check raises."""
    if not os.path.isfile(record_path(release)):
        return None
    record, entries = read_record(release)
    pushed = {entry.path: entry for entry in entries if entry.kind != DIR}
    left_out = [*BUILT_IN_EXCLUDES, *((record.get("provenance") or {}).get("exclude") or ())]
    found: Dict[str, str] = {}
    for entry in walk(release, left_out, odd=[], check=check):
        if entry.kind == DIR:
            continue
        before = pushed.pop(entry.path, None)
        if before is None and not entry.path.endswith(CODE):
            continue
        token = file_token(_hashed(release, entry, check))
        if before is None or token != file_token(before):
            found[entry.path] = token
    found.update({path: MISSING for path in pushed})
    return dict(sorted(found.items()))


def _hashed(release: str, entry: Entry, check: Check) -> Entry:
    if entry.kind != FILE:
        return entry
    try:
        return entry._replace(sha256=hash_file(os.path.join(release, entry.path), growing=True, check=check)[0])
    except ManifestError:
        return entry._replace(sha256="changing while it was read")


def expected_files(release: str, expected: Dict[str, Any], check: Check = lambda: None) -> Dict[str, Record] | None:
    """Path -> {found: sha256 or `missing`, as_expected}. expected: path -> `md5:...` or `sha256:...`. None: none."""
    if not expected:
        return None
    told = {}
    for name, wanted in sorted(expected.items()):
        path = os.path.join(release, name)  # an absolute one stays what it is
        algorithm, _, digest = str(wanted).partition(":")
        try:
            if not os.path.isabs(path):
                raise FileNotFoundError(path)  # there is no release that it could be in
            hashes = hashes_of(path, {"sha256", algorithm}, check)
        except (FileNotFoundError, NotADirectoryError):
            told[name] = {"found": MISSING, "as_expected": False}
            continue
        told[name] = {"found": hashes["sha256"], "as_expected": hashes[algorithm] == digest}
    return told


def hashes_of(path: str, algorithms: Iterable[str], check: Check = lambda: None) -> Dict[str, str]:
    """Raises OSError, ValueError for an algorithm that is not known here."""
    digests = {name: hashlib.new(name) for name in algorithms}
    with open_regular(path) as stream:
        while True:
            data = stream.read(READ_BYTES)
            if not data:
                return {name: digest.hexdigest() for name, digest in digests.items()}
            for digest in digests.values():
                digest.update(data)
            check()
