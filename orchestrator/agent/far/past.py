"""The newest earlier run that failed, with the end of its log: what a person wants to see beside the run of now.

Rule: bounded. Only the last LOOKED_BACK runs are asked, and only the end of one log is read.
"""

from __future__ import annotations

import os
from typing import List

from . import records
from .records import Record, contract

LOOKED_BACK = 20
TAIL_BYTES = 64 * 1024


def last_failure(base: str, run_ids: List[str], without: List[str | None]) -> Record | None:
    """{run_id, exit, log_tail}; `run_ids` oldest first, `without`: the run that is shown, the live one."""
    for run_id in reversed(run_ids[-LOOKED_BACK:]):
        if run_id in without:
            continue
        folder = records.run_folder(base, run_id)
        ended = records.read_record(folder, contract.EXIT)
        if _failed(folder, ended):
            return {"run_id": run_id, "exit": ended, "log_tail": _tail(folder)}
    return None


def _failed(folder: str, ended: Record | None) -> bool:
    if ended is None or "broken" in ended:
        return os.path.exists(os.path.join(folder, records.CLAIM))  # begun, and nobody recorded its end
    if ended.get("exit_code") == contract.EXIT_OK:
        return False
    asked = os.path.exists(os.path.join(folder, contract.STOP))
    return not asked or ended.get("exit_code") == contract.EXIT_FAILED


def _tail(folder: str) -> str:
    try:
        with open(os.path.join(folder, contract.RUN_LOG), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            return stream.read(TAIL_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
