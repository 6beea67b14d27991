"""A captured output, from a file or from stdin, as text."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.errors import UsageError

MAX_BYTES = 64 * 1024 * 1024


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
