"""Contents of files by their hash: what a run's folder keeps of files that no release holds, and where to find others.

Rule: bytes are given out only after they were hashed again; a file that is too large, or gone, is simply not found.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, Iterator, Tuple

from . import records
from .errors import OpError
from .records import Record
from .release_store import read_record, release_names

KEPT = "kept"
MAX_FILE_BYTES = 256 * 1024
MAX_KEPT_BYTES = 4 * 1024 * 1024
MAX_WANTED = 48
"""At once: of the largest, they fit one frame."""


def keep(folder: str, files: Dict[str, str]) -> None:
    """files: sha256 -> path. Copies beside the run's record, as long as they are small. Never raises."""
    room = MAX_KEPT_BYTES
    for sha256, path in sorted(files.items()):
        data = _content(path, sha256)
        if data is None or len(data) > room:
            continue
        room -= len(data)
        try:
            os.makedirs(os.path.join(folder, KEPT), mode=0o700, exist_ok=True)
            with open(os.open(os.path.join(folder, KEPT, sha256), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
                stream.write(data)
        except OSError:
            return


def file_contents(params: Record, body: bytes, channel: Any) -> Tuple[Record, bytes]:
    """base, wanted (list of sha256), paths (where else to look: absolute). {found: [[sha256, size], ...]}; the body
    is their contents, one behind the other."""
    base = records.base_folder(params)
    wanted = {str(sha256) for sha256 in (params.get("wanted") or [])[:MAX_WANTED]}
    found: Dict[str, bytes] = {}
    for sha256, path in _candidates(base, wanted):
        channel.check()
        if sha256 not in found:
            data = _content(path, sha256)
            if data is not None:
                found[sha256] = data
    for path in dict.fromkeys(str(path) for path in params.get("paths") or []):
        channel.check()
        if len(found) == len(wanted):
            break
        data = _small(path)
        if data is not None and (sha256 := hashlib.sha256(data).hexdigest()) in wanted:
            found[sha256] = data
    told = sorted(found.items())
    return {"found": [[sha256, len(data)] for sha256, data in told]}, b"".join(data for _, data in told)


def _candidates(base: str, wanted: set[str]) -> Iterator[Tuple[str, str]]:
    for run_id in records.run_ids(base):
        for sha256 in wanted:
            yield sha256, os.path.join(base, records.RUNS, run_id, KEPT, sha256)
    store = os.path.join(base, "releases")
    for name in release_names(store):
        release = os.path.join(store, name)
        try:
            entries = read_record(release)[1]
        except OpError:
            continue
        for entry in entries:
            if entry.sha256 in wanted:
                yield entry.sha256, os.path.join(release, entry.path)


def _content(path: str, sha256: str) -> bytes | None:
    data = _small(path)
    return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None


def _small(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        with open(descriptor, "rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= MAX_FILE_BYTES else None
