"""Makes what was written last: the one place that says when something is on disk."""

from __future__ import annotations

import os


def write_synced(path: str, data: bytes) -> None:
    """Its bytes; who made its name syncs the folder. Raises OSError."""
    with open(path, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_path(path: str) -> None:
    """A file's bytes, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(path: str) -> None:
    """Everything of the file system that `path` is on: for tens of thousands of files. Raises OSError."""
    import ctypes  # milliseconds that hardly any agent needs to spend

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "syncfs"):
            os.sync()
        elif library.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
