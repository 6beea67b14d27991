"""cache.json of a run: what its compile caches were made from, what they held before it, and what it added.

    {"schema", "run_id", "seeded": {snapshot, at} or None, "made_by": as in the snapshot's manifest, "maker": of this
    run, "before": as cache.measure tells, with counted_at; "after": the same with new_files and new_graphs}

Rule: it never fails a run, and holds the end of a training up for AFTER_S at most.
"""

from __future__ import annotations

import time

from . import cache, records
from .records import Record, contract

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict

VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
AFTER_S = 1.0
AFTER_FILES = 100_000
AFTER_WARMUP_S = 60.0
"""Of a warm-up this is the very question."""
SCHEMA = 1


def write_before(base: str, folder: str) -> None:
    """Once its fingerprint is written."""
    from .cache_makers import maker  # not for the wrapper, which only adds what is there afterwards
    from .snapshots import MANIFEST, SEEDED, snapshot_folder

    told = records.read_record(folder, contract.FINGERPRINT) or {}
    observed = told.get("observed")
    seeded = records.read_record(base, SEEDED) or {}
    name = seeded.get("snapshot")
    manifest: Record = {}
    try:
        if isinstance(name, str):
            manifest = records.read_record(snapshot_folder(base, name), MANIFEST) or {}
        record = {
            "schema": SCHEMA,
            "run_id": told.get("run_id"),
            "seeded": seeded if isinstance(name, str) else None,
            "made_by": manifest.get("made_by"),
            "maker": maker(told.get("identity")),
            "before": observed.get("cache") if isinstance(observed, dict) else None,
            "after": None,
        }
        records.write_record(folder, contract.CACHE, record)
    except Exception:  # whatever it is, the training matters more
        return


def write_after(folder: str, spec: Record) -> None:
    """By the wrapper, just before the end is told."""
    environment: Dict[str, Any] = spec.get("environment") or {}
    folders = {name: str(environment[name]) for name in VARIABLES if environment.get(name)}
    since = spec.get("created_at")
    try:
        record = records.read_record(folder, contract.CACHE) or {"schema": SCHEMA, "run_id": spec.get("run_id")}
        limits = (cache.MAX_FILES, AFTER_WARMUP_S) if spec.get("warmup") else (AFTER_FILES, AFTER_S)
        found = cache.measure(folders, *limits, since=since if isinstance(since, (int, float)) else None)
        record["after"] = {"folders": found, "counted_at": time.time()}
        records.write_record(folder, contract.CACHE, record)
    except Exception:
        return
