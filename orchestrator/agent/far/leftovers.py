"""Op run_leftovers: everything alive that was started as part of a run of this base. Looks only.

Rule: a process is a run's if it carries the run's folder in its environment, or is the one that the run's record
names (boot, pid, start time). Never by name.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from . import live, process, records
from .records import Record, contract


def run_leftovers(params: Record, body: bytes, channel: Any) -> Record:
    """params: base. {"live": live.lock, "live_run": its run or None, "runs": [{run_id, processes: [...]}]}."""
    base = records.base_folder(params)
    live_facts = live.facts(base)
    found: Dict[str, Dict[int, Record]] = {}
    for run_id, stat in _carriers(base):
        found.setdefault(run_id, {})[stat.pid] = dict(process.describe(stat), why="carries its folder")
    for run_id in records.run_ids(base):
        channel.check()
        for stat, why in _recorded(base, run_id, live_facts):
            found.setdefault(run_id, {})[stat.pid] = dict(process.describe(stat), why=why)
    content = live_facts["content"] or {}
    runs = [{"run_id": run_id, "processes": list(found[run_id].values())} for run_id in sorted(found)]
    return {"live": live_facts, "live_run": content.get("run_id") if live_facts["held"] else None, "runs": runs}


def _carriers(base: str) -> Any:
    """(run id, stat) of each living process whose environment names a run of this base, however it is spelled."""
    runs = os.path.realpath(os.path.join(base, records.RUNS))
    for stat, folder in process.values_of(contract.RUN_DIR_VARIABLE):
        if os.path.realpath(os.path.dirname(folder)) == runs and records.is_run_id(os.path.basename(folder)):
            yield os.path.basename(folder), stat


def _recorded(base: str, run_id: str, live_facts: Record) -> Any:
    folder = records.run_folder(base, run_id)
    training = records.training_identity(folder, live_facts)
    stat = process.live_stat(training) if training else None
    if stat is not None:
        yield stat, "its training"
    wrapper = (records.read_record(folder, contract.WRAPPER) or {}).get("wrapper")
    stat = process.live_stat(wrapper) if wrapper else None
    # A wrapper that has told the end is about to leave.
    if stat is not None and records.read_record(folder, contract.EXIT) is None:
        yield stat, "its wrapper"
