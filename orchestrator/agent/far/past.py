"""The newest run that failed, with its log from the failure on: what a person wants to see beside the run of now.

Rule: bounded. Only the last LOOKED_BACK runs are asked, and only the last SEARCHED_BYTES of one log are searched.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import List, Tuple

from . import failure, records, signs
from .records import Record, contract

LOOKED_BACK = 20
TAIL_BYTES = 64 * 1024
SEARCHED_BYTES = 64 * 1024 * 1024
TOLD_BYTES = 1024 * 1024


def last_failure(base: str, run_ids: List[str], without: List[str | None]) -> Record | None:
    """{run_id, exit, log_tail, log_signs}; `run_ids` oldest first, `without`: the live one. log_tail: from the last
    failure on; log_signs: rows before that which tell of one, too."""
    for run_id in reversed(run_ids[-LOOKED_BACK:]):
        if run_id in without:
            continue
        folder = records.run_folder(base, run_id)
        ended = records.read_record(folder, contract.EXIT)
        if _failed(folder, ended):
            early, tail = _tail(folder)
            return {"run_id": run_id, "exit": ended, "log_tail": tail, "log_signs": early}
    return None


def _failed(folder: str, ended: Record | None) -> bool:
    if ended is None or "broken" in ended:
        return os.path.exists(os.path.join(folder, records.CLAIM))  # begun, and nobody recorded its end
    if ended.get("exit_code") == contract.EXIT_OK:
        return False
    asked = os.path.exists(os.path.join(folder, contract.STOP))
    return not asked or ended.get("exit_code") == contract.EXIT_FAILED


def _tail(folder: str) -> Tuple[str, str]:
    path = os.path.join(folder, contract.RUN_LOG)
    try:
        found = os.stat(path)
        return _told(path, found.st_size, found.st_mtime_ns)
    except OSError:
        return "", ""


@lru_cache(maxsize=2)
def _told(path: str, size: int, mtime_ns: int) -> Tuple[str, str]:
    """(what tells of a failure before that, from the last traceback on, whatever was written behind it; without one the
    log's end). Kept: a watch asks often.

    Raises OSError.
    """
    with open(path, "rb") as stream:
        floor = max(0, size - SEARCHED_BYTES)
        begin = failure.last_begin(stream.fileno(), size, floor)
        start = max(0, size - TAIL_BYTES) if begin is None else begin
        stream.seek(start)
        tail = stream.read(TAIL_BYTES if begin is None else TOLD_BYTES)
        end = start + len(tail)
        if end < size:  # how it ended stands at its end
            stream.seek(max(end, size - TAIL_BYTES))
            tail += signs.LEFT_OUT + stream.read(TAIL_BYTES)
        early = signs.rows_around(stream.fileno(), start, floor)
        return early.decode("utf-8", "surrogateescape"), tail.decode("utf-8", "surrogateescape")
