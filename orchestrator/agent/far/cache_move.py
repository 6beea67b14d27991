"""Ops cache_describe and cache_receive: a snapshot goes from one place that keeps snapshots to another, on tree sync.

The place may be a target's or this machine's; both ends are this code. What arrives is kept by its hash until all of it
is there; then it is put together, synced and gets its name by one rename. What an older snapshot holds with the same
content, mode and time is linked, with other times copied, and is not asked for.
Rule: nothing here touches the live caches, and nothing that is kept is written to.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, List, Tuple

from . import journal, lease, records
from .blobs import NO_SPACE, Syncer, copy_verified
from .channel import Channel
from .durable import sync_file_system, sync_path
from .errors import OpError
from .manifest import DIR, FILE, Entry, ManifestError, check_entries, json_pack, json_unpack
from .records import Record
from .scan import hash_file
from .snapshots import (
    ARRIVAL,
    ARRIVING,
    FILES,
    MAKING,
    MANIFEST,
    SCHEMA,
    SNAPSHOTS,
    Files,
    kept_files,
    parse_files,
    read_files,
    read_files_text,
    read_manifest,
    snapshot_folder,
)
from .tree_push import Push, one_push

LOCK_WAIT_S = 20.0
"""The agent of a transfer that was cut needs some seconds to notice; then its lock is free."""


def cache_describe(params: Record, body: bytes, channel: Any) -> Tuple[Record, bytes]:
    """params: base, name. {"manifest", "path"}, and packed {"files": the text of files.json, "times": {cache: [ns of
    each of its entries, None of what is no file]}}. Raises OpError: missing, damaged."""
    folder = snapshot_folder(records.base_folder(params), params.get("name"))
    files = read_files(folder)
    told = {"files": read_files_text(folder).decode("ascii"), "times": _times(folder, files)}
    return {"manifest": read_manifest(folder), "path": folder}, json_pack(told)


def cache_receive(params: Record, body: bytes, channel: Channel) -> Record:
    """params: base, name, manifest, moved (goes into the manifest), who; body: as cache_describe gives it. Needs the
    lease on base.

    Event {} with the packed list of missing contents (positions in `unique_blobs` of `merged`), unless the snapshot is
    there; then takes frames of blobs.pack_frames in that order. {"snapshot", "already_there", "linked": files that a
    kept snapshot holds too, "copied_bytes"}. Raises OpError: conflict, damaged (naming the file), bad_manifest,
    disk_full, busy, no_lease, io: then there is no snapshot of that name.
    """
    base = records.base_folder(params)
    lease.require(base)
    name, manifest = params.get("name"), params["manifest"]
    final = snapshot_folder(base, name)
    files, text, times = _parse(manifest, body)
    if _is_there(base, final, manifest):
        return {"snapshot": name, "already_there": True, "linked": 0, "copied_bytes": 0}
    store = os.path.join(base, SNAPSHOTS)
    os.makedirs(store, exist_ok=True)
    about = dict(manifest, name=name, saved=True, kept=[], moved=params.get("moved"))
    try:
        began = journal.begin(base, "receive_cache", params.get("who"), {"snapshot": name})
        with began, one_push(store, LOCK_WAIT_S, channel) as incoming:
            arrival = _Arrival(base, incoming, files, times, channel)
            arrival.becomes(final, about, text, params.get("who"))
            copied = arrival.run()
    except ManifestError as error:
        paths = [entry.path for entry in merged(files) if entry.sha256 == error.path] or [str(error)]
        raise OpError("damaged", "the snapshot is damaged where it comes from: %s" % paths[0]) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(store, ARRIVING, ARRIVAL))
            raise OpError(
                "disk_full", "no space left below %s; what had come was removed" % store, str(error)
            ) from error
        raise OpError("io", "%s: %s" % (store, error)) from error
    return {"snapshot": name, "already_there": False, "linked": arrival.linked, "copied_bytes": copied}


def merged(files: Files) -> Tuple[Entry, ...]:
    """All caches as one tree, each below its name."""
    found = [Entry(kind, DIR, 0o755, 0, "", "") for kind in files]
    found += [entry._replace(path=kind + "/" + entry.path) for kind, entries in files.items() for entry in entries]
    return check_entries(found)


def _times(folder: str, files: Files) -> Dict[str, List[Any]]:
    found: Dict[str, List[Any]] = {}
    for kind, entries in files.items():
        found[kind] = []
        for entry in entries:
            try:
                facts = os.lstat(os.path.join(folder, kind, entry.path))
            except OSError as error:
                text = "snapshot %s is damaged: %s/%s" % (os.path.basename(folder), kind, entry.path)
                raise OpError("damaged", text, str(error)) from error
            found[kind].append(facts.st_mtime_ns if entry.kind == FILE else None)
    return found


def _parse(manifest: Any, body: bytes) -> Tuple[Files, bytes, Dict[str, int]]:
    """What there is, the text of files.json, `cache/path` -> ns. Raises OpError("bad_manifest")."""
    try:
        told = json_unpack(body)
        text = told["files"].encode("ascii")
        files = parse_files(text, manifest)
        if manifest.get("schema") != SCHEMA or sorted(manifest["folders"]) != sorted(files):
            raise ValueError("%s and %s do not fit" % (MANIFEST, FILES))
        if any(kind in (MANIFEST, FILES) for kind in files):
            raise ValueError("a cache cannot have that name")
        times = {}
        for kind, entries in files.items():
            for number, entry in enumerate(entries):
                if entry.kind == FILE:
                    times[kind + "/" + entry.path] = int(told["times"][kind][number])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ManifestError) as error:
        raise OpError("bad_manifest", "the description of the snapshot is refused: %s" % error) from error
    return files, text, times


def _is_there(base: str, final: str, manifest: Record) -> bool:
    """This very snapshot. Raises OpError("conflict") when the name is another one's."""
    name = os.path.basename(final)
    if os.path.lexists(os.path.join(base, SNAPSHOTS, MAKING + name)):
        raise OpError("conflict", "a clear that was cut short will be snapshot %s" % name, final)
    if not os.path.lexists(final):
        return False
    try:
        if read_manifest(final).get("files_sha256") == manifest.get("files_sha256"):
            return True
    except OpError:
        pass
    raise OpError("conflict", "there is another snapshot %s already" % name, final)


class _Arrival(Push):
    def __init__(self, base: str, incoming: str, files: Files, times: Dict[str, int], channel: Channel) -> None:
        super().__init__(os.path.join(base, SNAPSHOTS), incoming, merged(files), channel)
        self._all = self._entries
        self._times = times
        self._kept: Dict[str, List[Tuple[str, Entry]]] = {}
        for _, place, entry in kept_files(base):
            self._kept.setdefault(entry.sha256, []).append((place, entry))
        self._links = self._find_links()
        self._entries = [entry for entry in self._all if entry.path not in self._links]
        self.linked = len(self._links)

    def becomes(self, final: str, about: Record, text: bytes, who: Any) -> None:
        self._final, self._about, self._text, self._who = final, about, text, who

    def sweep(self) -> None:
        super().sweep()
        name = os.path.basename(self._final)
        records.write_record(self._incoming, ARRIVAL, {"name": name, "who": self._who, "at": time.time()})

    def publish(self, tree: str) -> None:
        with open(os.path.join(tree, FILES), "wb") as stream:
            stream.write(self._text)
            stream.flush()
            os.fsync(stream.fileno())
        records.write_record(tree, MANIFEST, self._about)
        os.chmod(tree, 0o700)
        os.rename(tree, self._final)
        sync_path(self._store)
        os.unlink(os.path.join(self._incoming, ARRIVAL))

    def _sync(self, syncer: Syncer) -> None:
        sync_file_system(self._tree)  # once for tens of thousands of files

    def _find_links(self) -> Dict[str, str]:
        """`cache/path` -> a kept file with this content, mode and time, read and found to be what it was."""
        found = {}
        for entry in self._all:
            self._channel.check()
            for place, kept in self._kept.get(entry.sha256, ()) if entry.kind == FILE else ():
                if kept.mode == entry.mode and _is_as(place, entry, self._times[entry.path]):
                    found[entry.path] = place
                    break
        return found

    def _absent(self, syncer: Syncer) -> List[int]:
        needed = {entry.sha256 for entry in self._entries}
        return [index for index in super()._absent(syncer) if self._wanted[index][0] in needed]

    def _known_contents(self) -> Dict[str, str]:
        return {sha256: places[0][0] for sha256, places in self._kept.items()}

    def _assemble(self, syncer: Syncer) -> None:
        os.mkdir(self._tree, 0o700)
        used = set()
        for entry in self._all:
            self._channel.check()
            path = os.path.join(self._tree, entry.path)
            if entry.kind == DIR:
                os.mkdir(path, 0o755)
            elif entry.kind != FILE:
                os.symlink(entry.target, path)
            elif entry.path in self._links:
                os.link(self._links[entry.path], path, follow_symlinks=False)
            else:
                blob = os.path.join(self._blobs, entry.sha256)
                if entry.sha256 not in used:
                    os.link(blob, path)  # the blob's own name goes at the end
                elif not copy_verified(blob, path, entry.sha256, syncer):
                    raise ManifestError(entry.sha256, "changed while the snapshot was put together")
                used.add(entry.sha256)
                os.chmod(path, entry.mode)
                os.utime(path, ns=(self._times[entry.path],) * 2)  # ninja compares them


def _is_as(place: str, entry: Entry, time_ns: int) -> bool:
    try:
        there = os.lstat(place)
        return (there.st_mtime_ns, there.st_size) == (time_ns, entry.size) and hash_file(place) == (
            entry.sha256,
            entry.size,
        )
    except (OSError, ManifestError):
        return False
