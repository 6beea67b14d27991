"""Kept copies of the compile caches: <base>/caches/snapshots/<name>/, one folder for each cache, and what is in them.

manifest.json: when, who, the runs that used it, where each cache was, sizes. files.json: every file with its hash.
Rule: a folder got its name by rename after all of it was there and described; nothing here writes into a snapshot.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Tuple

from . import records
from .durable import write_synced
from .errors import OpError
from .manifest import DIR, FILE, MAX_LISTING_BYTES, Entry, ManifestError, check_entries, parse
from .records import Record
from .regular import read_regular
from .scan import hash_file, scan_fit, walk

SNAPSHOTS = "caches/snapshots"
SEEDED = "caches/seeded.json"
"""Which snapshot the live caches were made from: {snapshot, at}."""
MANIFEST = "manifest.json"
FILES = "files.json"
INTENT = "intent.json"
MAKING = ".making-"
"""Of a clear: what is in it is the only copy."""
SAVING = ".saving-"
"""Of a save: what is in it is a copy, and may go."""
DROPPING = ".dropping-"
ARRIVING = ".incoming"
"""Where one comes in from elsewhere: what tree_push.Push keeps there."""
ARRIVAL = "arrival.json"
"""In it: {name, who, at}."""
SCHEMA = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Files = Dict[str, Tuple[Entry, ...]]
"""Cache (`inductor`, ...) -> its entries."""


def snapshot_folder(base: str, name: Any) -> str:
    """Raises OpError("bad_request") for a name that could lead elsewhere."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OpError("bad_request", "not the name of a snapshot: %r" % (name,))
    return os.path.join(base, SNAPSHOTS, name)


def list_snapshots(params: Record, body: bytes, channel: Any) -> Record:
    """params: base. {"snapshots": [{name, manifest}], oldest first, "unfinished": [names of clears that were cut
    short], "unsaved": [names of saves that were cut short], "arriving": [the name of one that has not all come in],
    "seeded": {snapshot, at} or None}."""
    base = records.base_folder(params)
    found = [
        {"name": name, "manifest": records.read_record(os.path.join(base, SNAPSHOTS, name), MANIFEST)}
        for name in names(base)
        if _NAME.fullmatch(name)
    ]
    unsaved = [name[len(SAVING) :] for name in names(base) if name.startswith(SAVING)]
    seeded = records.read_record(base, SEEDED)
    return {
        "snapshots": found,
        "unfinished": unfinished(base),
        "unsaved": unsaved,
        "arriving": arriving(base),
        "seeded": seeded,
    }


def snapshot_verify(params: Record, body: bytes, channel: Any) -> Record:
    """params: base, name. {"damaged": [cache/name, ...]}: missing, changed or added since. Raises OpError: missing."""
    folder = snapshot_folder(records.base_folder(params), params.get("name"))
    return {"damaged": damaged(folder, read_files(folder), channel.check)}


def unfinished(base: str) -> List[str]:
    return [name[len(MAKING) :] for name in names(base) if name.startswith(MAKING)]


def arriving(base: str) -> List[str]:
    """At most one: the store takes in one at a time, and the next takes the place of what was cut short."""
    folder = os.path.join(base, SNAPSHOTS, ARRIVING)
    name = (records.read_record(folder, ARRIVAL) or {}).get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or os.path.lexists(snapshot_folder(base, name)):
        return []
    return [name]


def read_manifest(folder: str) -> Record:
    """Raises OpError: missing, damaged."""
    manifest = records.read_record(folder, MANIFEST)
    if manifest is None:
        raise OpError("missing", "there is no snapshot %s" % os.path.basename(folder), folder)
    if manifest.get("schema") != SCHEMA or not isinstance(manifest.get("folders"), dict):
        raise OpError("damaged", "snapshot %s is damaged: %s" % (os.path.basename(folder), MANIFEST))
    return manifest


def read_files(folder: str) -> Files:
    """Raises OpError: missing, damaged."""
    manifest = read_manifest(folder)
    try:
        files = parse_files(read_files_text(folder), manifest)
        _check_folders(folder, manifest, files)
        return files
    except (OSError, ValueError, ManifestError) as error:
        name = os.path.basename(folder)
        raise OpError("damaged", "snapshot %s is damaged: %s" % (name, FILES), str(error)) from error


def read_files_text(folder: str) -> bytes:
    """files.json as it is. Raises OSError."""
    return read_regular(os.path.join(folder, FILES), MAX_LISTING_BYTES)


def parse_files(text: bytes, manifest: Record) -> Files:
    """Raises ValueError, ManifestError."""
    if hashlib.sha256(text).hexdigest() != manifest.get("files_sha256"):
        raise ValueError("its hash is not the recorded one")
    rows = json.loads(text.decode("ascii"))
    if not isinstance(rows, dict):
        raise ValueError("no object")
    return {kind: check_entries(parse(entries)) for kind, entries in rows.items()}


def _check_folders(folder: str, manifest: Record, files: Files) -> None:
    """Raises ValueError: manifest.json and files.json differ, or a link leads out of the snapshot."""
    for kind, about in manifest["folders"].items():
        sizes = [about.get(word) for word in ("bytes", "files")] if isinstance(about, dict) else []
        if kind not in files or not sizes or not all(type(size) is int for size in sizes):
            raise ValueError("%s tells something else of %s" % (MANIFEST, kind))
        if os.path.islink(os.path.join(folder, kind)):
            raise ValueError("%s is a link" % kind)
    if len(files) != len(manifest["folders"]):
        raise ValueError("%s names other caches" % MANIFEST)


def kept_files(base: str) -> Iterator[Tuple[str, str, Entry]]:
    """(cache, place, entry) of every file of every snapshot, the newest first; a damaged one gives nothing."""
    for name in reversed(names(base)):
        folder = os.path.join(base, SNAPSHOTS, name)
        try:
            files = read_files(folder) if _NAME.fullmatch(name) else {}
        except OpError:
            continue
        for kind, entries in files.items():
            for entry in entries:
                if entry.kind == FILE:
                    yield kind, os.path.join(folder, kind, entry.path), entry


def describe(folder: str, kinds: List[str], check: Callable[[], None]) -> Tuple[Files, List[str]]:
    """(what is there, names of what cannot be described). Raises OSError."""
    files: Files = {}
    odd: List[str] = []
    for kind in kinds:
        files[kind], strange = scan_fit(os.path.join(folder, kind), (), check=check)
        odd += [kind + "/" + name for name in strange]
    return files, odd


def write_manifest(folder: str, about: Record, paths: Dict[str, str], files: Files, odd: List[str]) -> Record:
    """files.json, then manifest.json; the record. paths: where each cache was. Raises OSError."""
    rows = {kind: [list(entry) for entry in entries] for kind, entries in files.items()}
    data = json.dumps(rows, separators=(",", ":")).encode("ascii")
    write_synced(os.path.join(folder, FILES), data)
    folders = {
        kind: {
            "path": path,
            "bytes": sum(entry.size for entry in files[kind]),
            "files": sum(1 for entry in files[kind] if entry.sha256),
        }
        for kind, path in paths.items()
    }
    manifest = dict(about, schema=SCHEMA, folders=folders, odd=odd, files_sha256=hashlib.sha256(data).hexdigest())
    records.write_record(folder, MANIFEST, manifest)
    return manifest


def totals(manifest: Record) -> Record:
    """{"bytes", "files"} of all its caches."""
    return {word: sum(about[word] for about in manifest["folders"].values()) for word in ("bytes", "files")}


def damaged(folder: str, files: Files, check: Callable[[], None]) -> List[str]:
    """What is not as files.json has it, as `cache/name`; what it could not describe is no damage."""
    odd = set(read_manifest(folder).get("odd") or [])
    wrong: List[str] = []
    for kind, entries in files.items():
        top = os.path.join(folder, kind)
        try:
            strange: List[str] = []
            found = {entry.path for entry in walk(top, (), odd=strange, check=check)}
            found.update(strange)
        except OSError:
            wrong.append(kind)
            continue
        wrong += [kind + "/" + entry.path for entry in entries if not _as_described(top, entry, check)]
        added = found - {entry.path for entry in entries}
        wrong += sorted(kind + "/" + path for path in added if kind + "/" + path not in odd)
    return wrong


def _as_described(top: str, entry: Entry, check: Callable[[], None]) -> bool:
    path = os.path.join(top, entry.path)
    try:
        if entry.kind == DIR:
            return os.path.isdir(path) and not os.path.islink(path)
        if entry.target:
            there = os.readlink(path)
            return entry.target in (there, os.path.relpath(there, os.path.dirname(path)) if there[0] == "/" else there)
        if os.lstat(path).st_size != entry.size:
            return False  # what is damaged may be of any size
        return hash_file(path, check=check) == (entry.sha256, entry.size)
    except (OSError, ManifestError):
        return False


def names(base: str) -> List[str]:
    """Names begin with the time they were made."""
    try:
        return sorted(os.listdir(os.path.join(base, SNAPSHOTS)))
    except FileNotFoundError:
        return []
