"""A captured output, from a file or from stdin, as text."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import UsageError

MAX_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


def read_captured(name: str) -> str:
    """name: a path, or `-`: stdin. Bytes that are no UTF-8 become one character each, so that offsets stay.
    Raises UsageError."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else _read_file(Path(name))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB", way_out="give a part of it: tail -c 64M FILE")
    return data.decode("utf-8", "surrogateescape")


def _read_file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


class LargeLog:
    """A file of any size, read once in pieces. Raises UsageError."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.characters = 0
        """Of what was read so far, counted as read_captured counts."""

    def pieces(self) -> Iterator[bytes]:
        """Raises UsageError: it cannot be read."""
        decoder = getincrementaldecoder("utf-8")("surrogateescape")
        try:
            with Path(self._name).open("rb") as stream:
                while piece := stream.read(PIECE_BYTES):
                    self.characters += len(decoder.decode(piece))
                    yield piece
            self.characters += len(decoder.decode(b"", final=True))
        except OSError as error:
            raise UsageError(f"{self._name} cannot be read: {error.strerror}") from error


def is_large(name: str) -> bool:
    """Whether it is more than is read at once; of stdin that is not known before."""
    try:
        return name != "-" and Path(name).stat().st_size > MAX_BYTES
    except OSError:
        return False  # whoever reads it says why
