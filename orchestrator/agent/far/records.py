"""The files of a run's folder that orch itself writes, and how they are read back.

Rule: a reader never fails on a record. It gets the object, None (not there), or {"broken": path}.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from typing import Any, Callable, Dict, List, Union

try:
    from . import contract as contract  # type: ignore[attr-defined]
except ImportError:  # in a checkout the one copy is the payload's
    from remote_payload import contract as contract

from . import process
from .durable import sync_path
from .errors import OpError

RUNS = "runs"
REFUSED = "refused.json"
"""The wrapper: it did not start anything, because a run is live."""
CLAIM = "start.claim"
"""Made exclusively, either by the wrapper just before the start or by a start_run that gives up waiting for it."""
BRIEF = "brief.json"
"""start_run: what a list of runs shows of the fingerprint, which is long."""
SEEDING = "caches/seeding.json"
"""What a seeding of the compile caches was about to do: see cache_seed."""
WRAPPER_LOG = "wrapper.log"

Record = Dict[str, Any]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def run_folder(base: str, run_id: Any) -> str:
    """Raises OpError("bad_request") for a name that could lead elsewhere."""
    if not is_run_id(run_id):
        raise OpError("bad_request", "not a run id: %r" % (run_id,))
    return os.path.join(base, RUNS, str(run_id))


def is_run_id(name: Any) -> bool:
    return isinstance(name, str) and _RUN_ID.fullmatch(name) is not None


def base_folder(params: Record) -> str:
    """Raises OpError("bad_request")."""
    base = params.get("base")
    if not isinstance(base, str) or not os.path.isabs(base):
        raise OpError("bad_request", "base must be an absolute path, not %r" % (base,))
    return base


def is_identity(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), int) for name in ("pid", "start_ticks"))


_FITS: Dict[str, Dict[str, Callable[[Any], bool]]] = {
    contract.WRAPPER: {"wrapper": is_identity, "training": is_identity},
    contract.RUN_SPEC: {
        "environment": lambda told: isinstance(told, dict) and all(isinstance(value, str) for value in told.values()),
        "created_at": lambda told: isinstance(told, (int, float)),
    },
}
"""What is not as it must be is left out, as if it had not been written: a run's folder may be anybody's."""


def read_record(folder: str, name: str) -> Record | None:
    """{"broken": path} for what is there and no record: cut short, no JSON object, no regular file."""
    path = os.path.join(folder, name)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return {"broken": path}
            with open(handle, "rb", closefd=False) as stream:
                record = json.loads(stream.read().decode("utf-8"))
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {"broken": path}
    if not isinstance(record, dict):
        return {"broken": path}
    fits = _FITS.get(name, {})
    return {key: value for key, value in record.items() if key not in fits or fits[key](value)}


def write_record(folder: str, name: str, record: Record) -> None:
    """By rename, mode 0600, on disk when this returns. Raises OSError."""
    from pathlib import Path  # a status only reads

    contract.write_json(Path(os.path.join(folder, name)), record)
    sync_path(folder)


class ReservedRecord:
    """A record whose room on the disk is taken at once, so that a full disk cannot keep it from being written."""

    ROOM_BYTES = 4096

    def __init__(self, folder: str, name: str) -> None:
        """Raises OSError."""
        self._folder = folder
        self._name = name
        self._path = os.path.join(folder, name + ".reserved")
        if os.path.exists(self._path) and os.path.getsize(self._path) == self.ROOM_BYTES:
            return  # start_run took it
        with open(self._path, "wb", opener=_private) as stream:
            stream.write(b" " * self.ROOM_BYTES)
            stream.flush()
            os.fsync(stream.fileno())

    def write(self, record: Record) -> None:
        """Raises OSError."""
        data = json.dumps(record, sort_keys=True).encode("ascii") + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, data, 0)
            os.ftruncate(handle, len(data))
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(self._path, os.path.join(self._folder, self._name))
        with contextlib.suppress(OSError):
            sync_path(self._folder)


def claim(folder: str) -> bool:
    """True for exactly one caller. Raises OSError other than "it is there"."""
    try:
        os.close(os.open(os.path.join(folder, CLAIM), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return True
    except FileExistsError:
        return False


def run_ids(base: str) -> List[str]:
    """Sorted: ids begin with the time they were made."""
    try:
        with os.scandir(os.path.join(base, RUNS)) as entries:
            return sorted(e.name for e in entries if _RUN_ID.fullmatch(e.name) and e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def latest_run(base: str, live: Record) -> str | None:
    """The live run, else the newest."""
    content = live.get("content") or {}
    if live.get("held") and isinstance(content.get("run_id"), str):
        return str(content["run_id"])
    for run_id in reversed(run_ids(base)):
        # Somebody's copy of a run, or a folder that holds none, is not the newest run.
        if (read_record(os.path.join(base, RUNS, run_id), contract.RUN_SPEC) or {}).get("run_id") == run_id:
            return run_id
    return None


def training_identity(
    folder: str, live: Record, read: Callable[[str, str], Union[Record, None]] = read_record
) -> Record | None:
    """Who the training's first process is or was: wrapper.json, else what live.lock says of the same run."""
    for source in (read(folder, contract.WRAPPER), live.get("content")):
        if source and source.get("run_id") == os.path.basename(folder) and is_identity(source.get("training")):
            return dict(source["training"])
    return None


def processes_of_run(folder: str) -> List[process.Stat]:
    """Everything alive that was started as part of this run: it carries the run's folder in its environment.
    The folder and not the id, because the id may exist under another base too; spelled as it was at the start."""
    environment = (read_record(folder, contract.RUN_SPEC) or {}).get("environment") or {}
    spelled = environment.get(contract.RUN_DIR_VARIABLE) or folder
    return process.processes_with(contract.RUN_DIR_VARIABLE, spelled)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
