"""<base>/journal.jsonl: what was begun on this target, by whom, and how it went. One JSON object a line.

    {"id", "at", "op", "who", "host", "phase": "begin" | "done" | "failed", "detail": {}, "by": identity of the agent}

Rule: the begin line is on disk before anything is changed, and a reader never fails. An operation whose begin
has no end and whose agent is dead was never finished; a later success of the same operation puts that right.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time

from . import process
from .durable import sync_path

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Tuple

    Line = Dict[str, Any]

JOURNAL = "journal.jsonl"
OLDER = "journal.1.jsonl"
MAX_BYTES = 256 * 1024
"""Beyond this the file is put aside, in place of the one put aside before: some thousand operations are kept."""
MAX_DETAIL_BYTES = 16 * 1024
LOCK_DEADLINE_S = 5.0

_seen: Dict[str, Tuple[Tuple[int, int, int], List[Line]]] = {}
"""Base -> (stamp of the file, its open entries): whoever looks again and again reads the file only when it changed."""


class Entry:
    """One operation under way. As a context manager: done at the end of the block, failed when that raises."""

    def __init__(self, base: str, line: Line, written: bool) -> None:
        self.id: str = line["id"]
        self._base = base
        self._line = line
        self._written = written

    def note(self, **more: Any) -> None:
        """For the line that tells the end."""
        self._line["detail"].update(more)

    def end(self, phase: str) -> None:
        """Never raises: what was done is done, whether or not there is room to say so."""
        if self._written:
            line = {name: value for name, value in self._line.items() if name != "by"}
            with contextlib.suppress(OSError):
                _append(self._base, _encode(dict(line, phase=phase, at=time.time())))

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            self.note(error=(str(error) or type(error).__name__)[:500])
        self.end("done" if error is None else "failed")


def begin(base: str, op: str, who: str | None, detail: Line, *, required: bool = True) -> Entry:
    """On disk when this returns. who: `ann@laptop`; None: the holder of the lease, which is ours.

    Raises OSError when it cannot be written; unless it is not required: what frees a full disk must work on one.
    """
    from . import lease  # a status only reads

    holder = lease.holder(base) or {}
    name, at, host = (who or "").rpartition("@")
    line = {
        "id": os.urandom(6).hex(),
        "at": time.time(),
        "op": op,
        "who": (name if at else host) or holder.get("who"),
        "host": (host if at else None) or holder.get("host"),
        "phase": "begin",
        "detail": dict(detail),
        "by": process.identity_of(os.getpid()),
    }
    try:
        _append(base, _encode(line))
    except OSError:
        if required:
            raise
        return Entry(base, line, written=False)
    return Entry(base, line, written=True)


def unfinished(base: str) -> List[Line]:
    """The begin lines of operations that nobody works at any more and that did not end. Oldest first."""
    path = os.path.join(base, JOURNAL)
    try:
        found = os.stat(path)
    except OSError:
        return []
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    if base not in _seen or _seen[base][0] != stamp:
        _seen[base] = (stamp, _open_entries(_lines(path)))
    return [line for line in _seen[base][1] if not _at_work(line)]


def journal_entries(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """base, run_id (None: everything). {"entries": lines as they stand, oldest first}."""
    base, run_id = params["base"], params.get("run_id")
    lines = _lines(os.path.join(base, OLDER)) + _lines(os.path.join(base, JOURNAL))
    return {"entries": [line for line in lines if run_id is None or line["detail"].get("run_id") == run_id]}


def journal_begin(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """base, operation, detail. For work of the controller that is more than one request. Needs the lease. {"id"}."""
    from . import lease

    lease.require(params["base"])
    entry = begin(params["base"], str(params["operation"]), None, dict(params.get("detail") or {}))
    _under_way[entry.id] = entry
    return {"id": entry.id}


def journal_end(params: Dict[str, Any], body: bytes, channel: Any) -> Dict[str, Any]:
    """id, phase ("done" or "failed"), detail (more of it)."""
    entry = _under_way.pop(str(params["id"]), None)
    if entry is not None:
        entry.note(**(params.get("detail") or {}))
        entry.end("done" if params.get("phase") == "done" else "failed")
    return {}


_under_way: Dict[str, Entry] = {}


def _open_entries(lines: List[Line]) -> List[Line]:
    """Begun, not ended, and not put right since."""
    found: Dict[str, Line] = {}
    for line in lines:
        if line["phase"] == "begin":
            found[line["id"]] = line
            continue
        found.pop(line["id"], None)
        if line["phase"] == "done":
            found = {key: begun for key, begun in found.items() if begun["op"] != line["op"] or _at_work(begun)}
    return list(found.values())


def _at_work(line: Line) -> bool:
    by = line.get("by")
    try:
        return isinstance(by, dict) and process.is_alive(by)
    except (KeyError, TypeError, ValueError):
        return False


SHAPE = {"id": str, "op": str, "phase": str, "detail": dict}


def _lines(path: str) -> List[Line]:
    """What is no line of ours, such as one torn by a crash, is read over."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError:
        return []
    found = []
    for text in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(text.decode("utf-8"))
            if isinstance(line, dict) and all(isinstance(line.get(name), kind) for name, kind in SHAPE.items()):
                found.append(line)
    return found


def _encode(line: Line) -> bytes:
    data = json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_DETAIL_BYTES:
        kept = {name: line["detail"][name] for name in ("run_id",) if name in line["detail"]}
        line = dict(line, detail=dict(kept, left_out_bytes=len(data)))
        data = json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")
    return data + b"\n"


def _append(base: str, data: bytes) -> None:
    """Raises OSError; then nothing of it is in the file."""
    path = os.path.join(base, JOURNAL)
    handle = _open_locked(path)
    try:
        size = os.fstat(handle).st_size
        if size > MAX_BYTES:
            _put_aside(base, path, data)
            return
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # somebody crashed while writing: his torn line ends here
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
        if not size:
            sync_path(base)
    finally:
        os.close(handle)


def _put_aside(base: str, path: str, data: bytes) -> None:
    """What is not finished goes over into the new file. There is a journal at every moment."""
    fresh, older = path + ".incoming", os.path.join(base, OLDER)
    kept = [_encode(line) for line in _open_entries(_lines(path))]
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(b"".join(kept) + data)
        stream.flush()
        os.fsync(stream.fileno())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(older)
    os.link(path, older)
    os.replace(fresh, path)
    sync_path(base)


def _open_locked(path: str) -> int:
    """Held exclusively for the length of one line. Raises OSError, also when somebody holds it for seconds."""
    until = time.monotonic() + LOCK_DEADLINE_S
    while True:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here, there = os.fstat(handle), os.stat(path)
            if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
                return handle
        except FileNotFoundError:
            pass  # put aside or removed since it was opened
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or time.monotonic() > until:
                os.close(handle)
                raise
            time.sleep(0.005)
        os.close(handle)
