"""Ops note_run and keep_findings: what was said of a run, by people and by the doctor: remarks.jsonl in its folder.

    {"at", "by", "kind": "note", "text"}
    {"at", "by", "kind": "finding", "phase": "seen" | "gone", "id", "severity", "title", "evidence": [...]}
    {"at", "by", "kind": "look"}    the doctor looked, and found nothing yet

Rule: appended only, one line at a time under a lock, on disk when the op answers; a torn line is read over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from typing import Any, Dict, List

from . import records
from .durable import sync_path
from .errors import OpError
from .records import Record

REMARKS = "remarks.jsonl"
MAX_BYTES = 128 * 1024
"""Of the file; then nothing more is taken."""
MAX_TEXT = 2000
MAX_FINDINGS = 32
MAX_EVIDENCE = 8
LOCK_DEADLINE_S = 5.0


def note_run(params: Record, body: bytes, channel: Any) -> Record:
    """base, run_id, text, who (`ann@laptop`). Answers the note. Raises OpError: missing, bad_request, io."""
    text = params.get("text")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
        raise OpError("bad_request", "a note is a text of 1 to %d letters" % MAX_TEXT)
    note = {"at": time.time(), "by": params.get("who"), "kind": "note", "text": text.strip()}
    with _Remarks(_folder(params)) as remarks:
        remarks.append([note])
    return note


def keep_findings(params: Record, body: bytes, channel: Any) -> Record:
    """base, run_id, who, findings ([{id, severity, title, evidence}]): all that is found of it now. Written is what is
    new, what is found no more, and of the first look that it was one: a run without findings may be one that nobody
    looked at. {"new": ids, "gone": ids}. Raises OpError: missing, bad_request, io."""
    folder = _folder(params)
    found = params.get("findings")
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("id"), str) for one in found
    ):
        raise OpError("bad_request", "findings must be a list of records with an id")
    now = {one["id"][:60]: one for one in found[:MAX_FINDINGS]}
    with _Remarks(folder) as remarks:
        lines = remarks.lines()
        before = {one["id"]: one for one in findings(lines) if one["gone_at"] is None}
        new = [key for key, one in now.items() if before.get(key, {}).get("severity") != _text(one.get("severity"))]
        gone = [key for key in before if key not in now]
        about = {"at": time.time(), "by": params.get("who"), "kind": "finding"}
        more = [dict(about, phase="seen", id=key, **_finding(now[key])) for key in new]
        more += [dict(about, phase="gone", id=key) for key in gone]
        remarks.append(more if more or looked(lines) else [dict(about, kind="look")])
    return {"new": new, "gone": gone}


def told(folder: str) -> Record:
    """{notes: the newest, findings: each once, looked: whether the doctor is known to have looked}. For the list of
    runs."""
    try:
        with open(os.path.join(folder, REMARKS), "rb") as stream:
            lines = parse(stream.read(2 * MAX_BYTES))
    except OSError:
        return {}
    notes = [{name: line.get(name) for name in ("at", "by", "text")} for line in lines if line["kind"] == "note"]
    return {"notes": notes[-MAX_EVIDENCE:], "findings": findings(lines), "looked": looked(lines)}


def looked(lines: List[Record]) -> bool:
    return any(line["kind"] in ("look", "finding") for line in lines)


def findings(lines: List[Record]) -> List[Record]:
    """{id, severity, title, evidence, first_at, gone_at (None: it was there when last looked)}, the first first."""
    found: Dict[str, Record] = {}
    for line in lines:
        if line["kind"] != "finding" or not isinstance(line.get("id"), str):
            continue
        seen = found.get(line["id"])
        if line.get("phase") == "gone":
            if seen:
                seen["gone_at"] = line.get("at")
            continue
        again = {name: line.get(name) for name in ("id", "severity", "title", "evidence")}
        found[line["id"]] = dict(again, first_at=seen["first_at"] if seen else line.get("at"), gone_at=None)
    return list(found.values())[-MAX_FINDINGS:]


def parse(data: bytes) -> List[Record]:
    """What is no line of ours, such as one torn by a crash, is read over."""
    lines = []
    for text in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(text.decode("utf-8"))
            if isinstance(line, dict) and isinstance(line.get("kind"), str):
                lines.append(line)
    return lines


class _Remarks:
    """The file, held exclusively. Raises OpError("io")."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, REMARKS)

    def __enter__(self) -> _Remarks:
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _lock(self._handle)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(self, *error: Any) -> None:
        os.close(self._handle)

    def lines(self) -> List[Record]:
        return parse(os.pread(self._handle, 2 * MAX_BYTES, 0))

    def append(self, lines: List[Record]) -> None:
        """On disk when this returns; or nothing of it is in the file."""
        if not lines:
            return
        try:
            size = os.fstat(self._handle).st_size
            data = b"".join(json.dumps(line, sort_keys=True).encode("ascii") + b"\n" for line in lines)
            if size + len(data) > MAX_BYTES:
                raise OSError(errno.EFBIG, "it holds %d bytes of remarks already" % size)
            if size and os.pread(self._handle, 1, size - 1) != b"\n":
                data = b"\n" + data  # somebody crashed while writing: his torn line ends here
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._handle, view) :]
                os.fsync(self._handle)
            except OSError:
                os.ftruncate(self._handle, size)
                raise
            if not size:
                sync_path(self._folder)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OpError:
        return OpError("io", "nothing was written of run %s: %s" % (os.path.basename(self._folder), error), self._path)


def _lock(handle: int) -> None:
    until = time.monotonic() + LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or time.monotonic() > until:
                os.close(handle)
                raise
            time.sleep(0.005)


def _folder(params: Record) -> str:
    folder = records.run_folder(records.base_folder(params), params.get("run_id"))
    if not os.path.isdir(folder):
        raise OpError("missing", "there is no run %s" % params.get("run_id"), folder)
    return folder


def _finding(one: Record) -> Record:
    evidence = one.get("evidence")
    kept = [_text(line) for line in evidence[:MAX_EVIDENCE]] if isinstance(evidence, list) else []
    return {"severity": _text(one.get("severity")), "title": _text(one.get("title")), "evidence": kept}


def _text(value: Any) -> str:
    return str(value)[:300] if value is not None else ""
