"""File contents on the way: one byte stream of blobs in an agreed order, cut into frames, each packed if that helps.

Rule: a blob has a name (its sha256) only after its bytes were hashed on the way to disk. Memory is one frame,
whatever the size of a file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import zlib

from .durable import sync_path
from .manifest import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

FRAME_BYTES = 256 * 1024
"""Small enough for memory that malloc uses again: frames of a megabyte are unpacked at a quarter of the speed."""
COPY_BYTES = 256 * 1024
SAMPLE_BYTES = 16 * 1024
WORTH_IT = 0.85
"""Pack a frame only if a sample of it shrinks below this: compressing what is compressed already only costs time."""
SYNC_THREADS = 8
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def pack_frames(
    pieces: Iterable[bytes], *, worth_packing: Callable[[], bool] = lambda: True
) -> Iterator[Tuple[Dict[str, Any], bytes, int]]:
    """(header, body, number of raw bytes) for each frame. Small files share one.

    worth_packing: asked before each frame; a fast link is fed faster with what is not packed.
    """
    buffer: List[bytes] = []
    size = 0
    for piece in pieces:
        buffer.append(piece)
        size += len(piece)
        if size >= FRAME_BYTES:
            yield _pack(b"".join(buffer), worth_packing())
            buffer, size = [], 0
    if size:
        yield _pack(b"".join(buffer), worth_packing())


def unpack_frame(header: Dict[str, Any], body: bytes) -> bytes:
    """Raises ManifestError for what does not unpack into something bounded."""
    if not header.get("packed"):
        return body
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, 8 * FRAME_BYTES)
    except zlib.error as error:
        raise ManifestError("", "a frame of file contents does not unpack") from error
    if not inflater.eof:
        raise ManifestError("", "a frame of file contents is too large")
    return data


def _pack(data: bytes, worth_it: bool) -> Tuple[Dict[str, Any], bytes, int]:
    if not worth_it:
        return {}, data, len(data)
    middle = len(data) // 2
    sample = data[middle : middle + SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) < WORTH_IT * len(sample):
        return {"packed": True}, zlib.compress(data, 1), len(data)
    return {}, data, len(data)


class BlobWriter:
    """Takes the byte stream apart again; each blob goes to `folder/<sha256>`.

    What has another hash than announced raises ManifestError; or, if tolerant, is dropped and listed in `wrong`.
    """

    def __init__(
        self, folder: str, wanted: Iterable[Tuple[str, int]], syncer: Syncer, *, tolerant: bool = False
    ) -> None:
        self.wrong: List[str] = []
        self._tolerant = tolerant
        self._folder = folder
        self._wanted = list(wanted)
        self._next = 0
        self._syncer = syncer
        self._stream: int | None = None
        self._digest = hashlib.sha256()
        self._left = 0

    @property
    def done(self) -> bool:
        return self._stream is None and self._next == len(self._wanted)

    def feed(self, data: bytes) -> None:
        """Call it once with nothing, for empty files need no bytes. Raises OSError, ManifestError."""
        view = memoryview(data)
        while True:
            if self._stream is None:
                if self._next == len(self._wanted):
                    break
                self._open()
            piece = view[: self._left]
            view = view[len(piece) :]
            self._write(piece)
            if self._left:
                break
            self._close()
        if view:
            raise ManifestError("", "more file contents came than were asked for")

    def abandon(self) -> None:
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None
            os.unlink(self._part())

    def _open(self) -> None:
        self._left = self._wanted[self._next][1]
        self._digest = hashlib.sha256()
        self._stream = os.open(self._part(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        os.fchmod(self._stream, 0o644)  # whatever the umask is

    def _write(self, piece: memoryview) -> None:
        assert self._stream is not None
        self._digest.update(piece)
        self._left -= len(piece)
        while piece:
            piece = piece[os.write(self._stream, piece) :]

    def _close(self) -> None:
        assert self._stream is not None
        sha256 = self._wanted[self._next][0]
        if self._digest.hexdigest() != sha256:
            self.abandon()
            if self._tolerant:
                self.wrong.append(sha256)
                self._next += 1
                return
            raise ManifestError(sha256, "the bytes that came are not those that were announced")
        final = os.path.join(self._folder, sha256)
        os.rename(self._part(), final)
        os.close(self._stream)
        self._stream = None
        self._syncer.add(final)
        self._next += 1

    def _part(self) -> str:
        return os.path.join(self._folder, "part")


def copy_verified(source: str, destination: str, sha256: str, syncer: Syncer) -> bool:
    """False, and no file, when the source is not (or no longer) what its name says. Raises OSError."""
    digest = hashlib.sha256()
    try:
        reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    writing = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        os.fchmod(writing, 0o644)
        buffer = memoryview(bytearray(COPY_BYTES))
        while True:
            got = os.readv(reading, [buffer])
            if not got:
                break
            view = buffer[:got]
            digest.update(view)
            while view:
                view = view[os.write(writing, view) :]
    except BaseException:
        os.close(writing)
        os.unlink(destination)
        raise
    finally:
        os.close(reading)
    os.close(writing)
    if digest.hexdigest() != sha256:
        os.unlink(destination)
        return False
    syncer.add(destination)
    return True


def remove_quietly(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


class Syncer:
    """Remembers what was written and makes all of it last at the end, several fsyncs at a time.

    Several at a time share the journal's commits. Putting it off until the end does not make a push faster: what
    takes the time is making the files. It is here so that one place says when a release is on disk.
    """

    def __init__(self) -> None:
        self._paths: List[str] = []
        self._failures: List[OSError] = []

    def add(self, path: str) -> None:
        """A file or a folder, under a name that it still has when `finish` is called."""
        self._paths.append(path)

    def finish(self) -> None:
        """Raises the first OSError."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(SYNC_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        while True:
            try:
                path = self._paths.pop()  # atomic
            except IndexError:
                return
            try:
                sync_path(path)
            except OSError as error:
                self._failures.append(error)
