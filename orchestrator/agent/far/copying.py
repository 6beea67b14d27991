"""Copies of many small files, each hashed on its way, several at a time.

Most of the time of a small file goes into a dozen calls of the kernel, and those and hashing leave Python's lock: so
threads help. What makes the copies last is the caller's one sync of the file system.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Callable, List, Sequence, Tuple

BUFFER_BYTES = 256 * 1024
THREADS = 4
FEW = 64
"""So many are done sooner than threads are started."""

_local = threading.local()


def copy_hashed(source: str, target: str, mode: int) -> Tuple[str, os.stat_result, os.stat_result]:
    """A new file with that mode and the source's times: (sha256 of what was copied, the source's facts before and
    after). Links are not followed. Raises OSError; of the target's after the source was opened."""
    digest = hashlib.sha256()
    buffer = _buffer()
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(reading)
        if not stat.S_ISREG(before.st_mode):  # opening a pipe would else wait for a writer
            raise OSError(errno.EINVAL, "no regular file", source)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            left = before.st_size
            while left:
                got = os.readv(reading, [buffer[:left]])
                if not got:
                    break
                left -= got
                view = buffer[:got]
                digest.update(view)
                while view:
                    view = view[os.write(writing, view) :]
            os.fchmod(writing, mode)  # whatever the umask is
            os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))  # ninja compares them
        finally:
            os.close(writing)
        after = os.fstat(reading)
    finally:
        os.close(reading)
    return digest.hexdigest(), before, after


def each(work: Callable[[Any], Any], items: Sequence[Any]) -> List[Any]:
    """work(item) of each, in their order. The first failure stops the others and is raised."""
    if len(items) < FEW:
        return [work(item) for item in items]
    results: List[Any] = [None] * len(items)
    failures: List[BaseException] = []
    numbers = iter(range(len(items)))  # its next() is one step of the interpreter

    def some() -> None:
        for number in numbers:
            if failures:
                return
            try:
                results[number] = work(items[number])
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=some, daemon=True) for _ in range(THREADS - 1)]
    for thread in threads:
        thread.start()
    some()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def _buffer() -> memoryview:
    """One for each thread: a fresh one each time costs its page faults."""
    found: memoryview | None = getattr(_local, "buffer", None)
    if found is None:
        found = _local.buffer = memoryview(bytearray(BUFFER_BYTES))
    return found
