"""What earlier runs tell of what the next one compiles: the plan that a payload wrote into runtime.json, and whether
one like it found everything in the caches as they are now."""

from __future__ import annotations

import os
from typing import Any, Dict

from . import cache, records
from .observe import release
from .records import Record, contract

MOST_RUNS = 50
MISSES = ("cache_misses", "aot_cache_misses", "cache_bypasses")
HITS = ("cache_hits", "aot_cache_hits")
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


def cache_proof(params: Record, body: bytes, channel: Any) -> Record:
    """Op: params: base, folders {variable: absolute path}, like (values of OF_THE_SPEC).

    {"proof": {"run_id", "identity": of its fingerprint} or None}: of the newest run of the current release like this
    that missed nothing and added nothing, if the caches are as that run left them."""
    base = records.base_folder(params)
    like, now = dict(params.get("like") or {}), None
    for run_id in reversed(records.run_ids(base)[-MOST_RUNS:]):
        folder = os.path.join(base, records.RUNS, run_id)
        spec = records.read_record(folder, contract.RUN_SPEC) or {}
        same = spec.get("release") == release(base) and all(spec.get(name) == like.get(name) for name in OF_THE_SPEC)
        if not same or (records.read_record(folder, contract.EXIT) or {}).get("exit_code") != 0:
            continue
        if now is None:
            now = _held(cache.measure(params["folders"], check=channel.check))
        if now is not None and _found_all(folder) and _held(_after(folder)) == now:
            fingerprint = records.read_record(folder, contract.FINGERPRINT) or {}
            return {"proof": {"run_id": run_id, "identity": fingerprint.get("identity")}}
    return {"proof": None}


def _after(folder: str) -> Record:
    after = (records.read_record(folder, contract.CACHE) or {}).get("after")
    folders = after.get("folders") if isinstance(after, dict) else None
    return folders if isinstance(folders, dict) else {}


def _held(folders: Record) -> Any:
    """None where it is not all known."""
    if not folders or not all(about.get("complete") for about in folders.values()):
        return None
    return {name: (about.get("path"), about.get("files"), about.get("bytes")) for name, about in folders.items()}


def _found_all(folder: str) -> bool:
    after = _after(folder)
    compiled = (records.read_record(folder, contract.STATUS) or {}).get("compiled")
    counted = compiled if isinstance(compiled, dict) else {}
    misses = [counted.get(name) or 0 for name in MISSES]
    if any(name in counted for name in MISSES) and not any(counted.get(name) for name in HITS):
        return False  # nothing was looked up: torch's caches were off
    known = [about.get("new_files") for about in after.values() if about.get("exists")]
    return bool(known) and not any(misses) and all(new == 0 for new in known)
