"""What a payload said that it compiles: `compile_plan` of the runtime.json of a run."""

from __future__ import annotations

import os
from typing import Any, Dict

from . import records
from .records import Record, contract

MOST_RUNS = 50
OF_THE_SPEC = ("payload", "settings", "targets", "drafters", "model")
"""What decides the shapes and the devices."""


def find_plan(base: str, like: Dict[str, Any]) -> Record | None:
    """{"run_id", "graphs": {device: least number}, "alike"} of the newest run whose spec is like this, else of the
    newest that said anything. like: values of OF_THE_SPEC."""
    other: Record | None = None
    for run_id in reversed(records.run_ids(base)[-MOST_RUNS:]):
        folder = os.path.join(base, records.RUNS, run_id)
        plan = (records.read_record(folder, contract.RUNTIME) or {}).get("compile_plan")
        graphs = plan.get("graphs") if isinstance(plan, dict) else None
        if not isinstance(graphs, dict) or not graphs:
            continue
        spec = records.read_record(folder, contract.RUN_SPEC) or {}
        alike = all(spec.get(name) == like.get(name) for name in OF_THE_SPEC)
        if alike:
            return {"run_id": run_id, "graphs": graphs, "alike": True}
        other = other or {"run_id": run_id, "graphs": graphs, "alike": False}
    return other
