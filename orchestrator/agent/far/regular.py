"""Reading files that anybody may have put there: a regular file or an error, never a wait.

Rule: opening a FIFO waits for its other end, and a device may have none: neither is opened here for good.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import BinaryIO


def open_regular(path: str) -> BinaryIO:
    """Unbuffered. Raises OSError, also for what is no regular file and for a name that no file can have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte
        raise OSError(errno.EINVAL, str(error), path) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        return open(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str, limit_bytes: int) -> bytes:
    """At most so much of it. Raises OSError."""
    pieces = []
    with open_regular(path) as stream:
        while limit_bytes > 0:
            data = stream.read(min(limit_bytes, 1 << 20))
            if not data:
                break
            pieces.append(data)
            limit_bytes -= len(data)
    return b"".join(pieces)
