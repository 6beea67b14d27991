"""Receives a tree into a store: ask for what is missing, verify, sync, rename.

Rule: until the last rename nothing outside <store>/.incoming is touched; a cut at any point leaves the store as
it was, and what had arrived whole is not asked for again. One that is made anew is set aside just before that rename.

    .incoming/lock     flock: one push per store at a time, so everything else in .incoming is this push's
    .incoming/blobs/   contents by sha256; survives a cut
    .incoming/tree/    the release while it is put together
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from .blobs import NO_SPACE, BlobWriter, Syncer, copy_verified, remove_quietly, unpack_frame
from .channel import Channel
from .durable import sync_path
from .errors import OpError
from .files import free_space
from .manifest import DIR, FILE, Entry, ManifestError, json_pack, tree_hash, unique_blobs, unpack
from .release_store import INCOMING, is_complete, read_record, release_names, write_record
from .scan import BUILT_IN_EXCLUDES, hash_file, scan

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, Iterator, List, Sequence, Tuple

MARGIN_BYTES = 64 * 1024 * 1024
MARGIN_INODES = 256
MARGIN_SHARE = 0.02
"""Beside what the files hold: folders, block rounding, and something left for everybody else."""
BLOCK_BYTES = 4096


def tree_push(params: Dict[str, Any], body: bytes, channel: Channel) -> Dict[str, Any]:
    """store, tree_hash, provenance, lock_wait_s, share (files that other trees of the store hold too become one
    file with theirs: for what nobody ever writes to); body: the packed manifest.

    Raises OpError: busy, disk_full, bad_manifest, bad_content, conflict, io.

    Event {} with the packed list of missing blobs (positions in `unique_blobs`), unless the release is there;
    then takes frames of blobs.pack_frames in that order. Answers {path, already_there, copied_bytes}.
    """
    store = params["store"]
    try:
        entries = unpack(body)
    except ManifestError as error:
        raise OpError("bad_manifest", "the list of files is refused: %s" % error) from error
    name = tree_hash(entries)
    if name != params["tree_hash"]:
        raise OpError("bad_manifest", "the list of files has not the hash that was announced")
    share = bool(params.get("share"))
    if share and any(entry.kind == FILE and entry.mode != 0o644 for entry in entries):
        raise OpError("bad_manifest", "a mode is one file's: a tree that shares its files has none but 0644")
    final = os.path.join(store, name)
    spoiled = _spoiled(final, entries, channel) if params.get("mend") and is_complete(final) else []
    if is_complete(final) and not spoiled:
        return {"path": final, "already_there": True, "copied_bytes": 0, "mended": [], "kept": None}
    try:
        with one_push(store, float(params["lock_wait_s"]), channel) as incoming:
            push = _Release(store, incoming, entries, channel, share=share)
            copied = push.make(name, params.get("provenance"), anew=bool(spoiled))
    except ManifestError as error:
        raise OpError("bad_content", str(error)) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise OpError("disk_full", "no space left below %s; the push was undone" % store, str(error)) from error
        raise OpError("io", "%s: %s" % (store, error)) from error
    kept = push.aside if spoiled else None
    return {"path": final, "already_there": False, "copied_bytes": copied, "mended": spoiled, "kept": kept}


def _spoiled(release: str, entries: Sequence[Entry], channel: Channel) -> List[str]:
    """Paths of what was pushed and is another or gone. What was added is left alone: a training may write there."""
    from .release_facts import edited

    pushed = {entry.path for entry in entries}
    return [path for path in edited(release, channel.check) or {} if path in pushed]


@contextlib.contextmanager
def one_push(store: str, wait_s: float, channel: Channel) -> Iterator[str]:
    """<store>/.incoming, which is ours within the block. Raises OpError: busy, conflict."""
    incoming = os.path.join(store, INCOMING)
    os.makedirs(incoming, exist_ok=True)
    if os.path.islink(incoming):
        raise OpError("conflict", "%s is a link" % incoming)
    lock = os.open(os.path.join(incoming, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise OpError("busy", "another push into %s is under way" % store) from error
            channel.cancelled.wait(0.1)
            channel.check()
        yield incoming
    finally:
        os.close(lock)


class Push:
    """What arrives, from the list of what is missing to a tree that is on disk. Who receives says what it becomes."""

    def __init__(
        self, store: str, incoming: str, entries: Sequence[Entry], channel: Channel, *, share: bool = False
    ) -> None:
        self._store = store
        self._share = share
        self._entries = entries
        self._channel = channel
        self._incoming = incoming
        self._blobs = os.path.join(incoming, "blobs")
        self._tree = os.path.join(incoming, "tree")
        self._wanted = unique_blobs(entries)

    def run(self) -> int:
        """Bytes that were copied from what is there. Raises OSError, ManifestError, OpError."""
        self.sweep()
        syncer = Syncer()
        try:
            copied = self._fill(syncer)
            self._assemble(syncer)
            self._sync(syncer)
            self.publish(self._tree)
        except OSError as error:
            if error.errno in NO_SPACE:
                remove_quietly(self._blobs)
            raise
        finally:
            remove_quietly(self._tree)
        remove_quietly(self._blobs)
        return copied

    def publish(self, tree: str) -> None:
        """The tree is whole and on disk: give it its name."""
        raise NotImplementedError

    def _sync(self, syncer: Syncer) -> None:
        syncer.finish()

    def sweep(self) -> None:
        """What a killed push, or a killed removal, left behind; we hold the lock."""
        for name in os.listdir(self._incoming):
            path = os.path.join(self._incoming, name)
            if os.path.isdir(path) and path != self._blobs:
                remove_quietly(path)
            elif name.endswith(".json"):
                os.unlink(path)

    def _fill(self, syncer: Syncer) -> int:
        os.makedirs(self._blobs, exist_ok=True)
        absent = self._absent(syncer)
        self._check_space(absent)
        copied, missing = self._copy_known(absent, syncer)
        self._channel.emit({}, json_pack(missing))
        writer = BlobWriter(self._blobs, [self._wanted[index] for index in missing], syncer)
        try:
            writer.feed(b"")
            while not writer.done:
                header, body = self._channel.receive()
                writer.feed(unpack_frame(header, body))
        finally:
            writer.abandon()
        return copied

    def _absent(self, syncer: Syncer) -> List[int]:
        """What an earlier push left here is hashed again: a crash of the machine may have emptied it."""
        left = set(os.listdir(self._blobs))
        absent = []
        for index, (sha256, _) in enumerate(self._wanted):
            self._channel.check()
            path = os.path.join(self._blobs, sha256)
            if sha256 in left and os.lstat(path).st_nlink > 1:
                # Part of a tree that got its name just before the cut: its mode and times are not ours to set.
                os.unlink(path)
                left.remove(sha256)
            if sha256 in left and hash_file(path)[0] == sha256:
                syncer.add(path)
            else:
                absent.append(index)
        for name in left - {sha256 for sha256, _ in self._wanted}:
            os.unlink(os.path.join(self._blobs, name))
        return absent

    def _check_space(self, absent: List[int]) -> None:
        sizes = [self._wanted[index][1] for index in absent]
        seen = set()
        for entry in self._entries:  # the same content twice is stored twice
            if entry.kind == FILE and entry.sha256 in seen:
                sizes.append(entry.size)
            seen.add(entry.sha256)
        need = sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)
        need += BLOCK_BYTES * sum(entry.kind == DIR for entry in self._entries)
        free = free_space(self._store)
        total = free["bytes_total"] or 0
        margin = min(MARGIN_BYTES, int(total * MARGIN_SHARE))
        have = free["bytes_free"] or 0
        if need + margin > have:
            text = "%d bytes are needed (and %d to spare), %d are free" % (need, margin, have)
            raise OpError("disk_full", "not enough space below %s; nothing was sent" % self._store, text)
        inodes = free["inodes_free"]
        if inodes is not None and len(self._entries) + MARGIN_INODES > inodes:
            text = "%d inodes are needed (and %d to spare), %d are free" % (len(self._entries), MARGIN_INODES, inodes)
            raise OpError("disk_full", "not enough inodes below %s; nothing was sent" % self._store, text)

    def _copy_known(self, absent: List[int], syncer: Syncer) -> Tuple[int, List[int]]:
        known = self._known_contents() if absent else {}
        copied, missing = 0, []
        for index in absent:
            self._channel.check()
            sha256, size = self._wanted[index]
            source = known.get(sha256)
            if source is not None and self._take(source, os.path.join(self._blobs, sha256), sha256, syncer):
                copied += size
            else:
                missing.append(index)
        return copied, missing

    def _take(self, source: str, blob: str, sha256: str, syncer: Syncer) -> bool:
        if not self._share:
            return copy_verified(source, blob, sha256, syncer)
        try:
            if hash_file(source)[0] != sha256:
                return False
        except (OSError, ManifestError):
            return False
        os.link(source, blob)
        return True

    def _known_contents(self) -> Dict[str, str]:
        """sha256 -> a file that should have that content; it is hashed before it is used."""
        raise NotImplementedError

    def _assemble(self, syncer: Syncer) -> None:
        os.mkdir(self._tree)
        os.chmod(self._tree, 0o755)
        used = set()
        for entry in self._entries:
            self._channel.check()
            path = os.path.join(self._tree, entry.path)
            if entry.kind == DIR:
                os.mkdir(path)
                os.chmod(path, 0o755)
            elif entry.kind == FILE:
                blob = os.path.join(self._blobs, entry.sha256)
                if entry.sha256 not in used:
                    os.link(blob, path)  # the blob's own name goes at the end
                elif not copy_verified(blob, path, entry.sha256, syncer):
                    raise ManifestError(entry.path, "changed while the release was put together")
                used.add(entry.sha256)
                if entry.mode != 0o644:
                    os.chmod(path, entry.mode)
            else:
                os.symlink(entry.target, path)
        for entry in self._entries:
            if entry.kind == DIR:
                syncer.add(os.path.join(self._tree, entry.path))
        syncer.add(self._tree)


class _Release(Push):
    aside: str | None = None
    """Where the release that was edited in place is kept."""

    def make(self, name: str, provenance: Any, *, anew: bool = False) -> int:
        """Bytes that were copied from other releases. anew: also where it is there."""
        self._name, self._provenance = name, provenance
        final = os.path.join(self._store, name)
        if anew:
            self.aside = os.path.join(self._store, ".edited-%s-%d" % (name[:12], time.time_ns()))
        if anew or not os.path.isdir(final):
            return self.run()
        self.sweep()
        self._adopt(final)
        self.publish(final)
        return 0

    def publish(self, tree: str) -> None:
        final = os.path.join(self._store, self._name)
        write_record(final, self._name, self._entries, self._provenance)
        if tree != final:
            if self.aside is not None:
                os.rename(final, self.aside)  # a cut here leaves no release of this name: the next push makes it
            os.rename(tree, final)
        sync_path(self._store)

    def _adopt(self, final: str) -> None:
        """A release without its record: somebody removed it. Good only if every byte is as it should be."""
        if tree_hash(scan(final, BUILT_IN_EXCLUDES)) != os.path.basename(final):
            raise OpError("conflict", "%s exists, has no record, and holds something else: move it aside" % final)

    def _known_contents(self) -> Dict[str, str]:
        known: Dict[str, str] = {}
        for name in release_names(self._store):
            release = os.path.join(self._store, name)
            try:
                _, entries = read_record(release)
            except OpError:
                continue  # somebody spoiled it: it only helps
            for entry in entries:
                if entry.kind == FILE:
                    known[entry.sha256] = os.path.join(release, entry.path)
        return known
