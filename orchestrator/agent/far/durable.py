"""Makes what was written last: the one place that says when something is on disk."""

from __future__ import annotations

import os


def sync_path(path: str) -> None:
    """A file's bytes, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
