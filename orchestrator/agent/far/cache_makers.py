"""Which runs made what is in the live caches, and with what: what decides whether its entries will be found again."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from . import records
from .cache_plan import find_plan
from .records import Record, contract
from .snapshots import MANIFEST, SEEDED, SNAPSHOTS, names, snapshot_folder

MAX_MAKERS = 8


def cache_maker(params: Record, body: bytes, channel: Any) -> Record:
    """Op: params: base, identity (a fingerprint's), like. {"maker": as `maker`, "plan": as find_plan}."""
    plan = find_plan(records.base_folder(params), dict(params.get("like") or {}))
    return {"maker": maker(params.get("identity")), "plan": plan}


def runs_of(base: str, folders: Dict[str, str]) -> List[str]:
    """The runs since the last clear that were told to use one of these folders. Oldest first."""
    since = 0.0
    for name in names(base):
        manifest = records.read_record(os.path.join(base, SNAPSHOTS, name), MANIFEST) or {}
        at = manifest.get("made_at")
        if not manifest.get("saved"):  # a save leaves the live caches where they are
            since = max(since, at if isinstance(at, float) else 0.0)
    users = []
    for run_id in records.run_ids(base):
        spec = records.read_record(os.path.join(base, records.RUNS, run_id), contract.RUN_SPEC) or {}
        told = set((spec.get("environment") or {}).values())
        if float(spec.get("created_at") or 0.0) > since and told & set(folders.values()):
            users.append(run_id)
    return users


def makers(base: str, folders: Dict[str, str]) -> List[Record]:
    """As `maker`, with run_id: what the runs of `runs_of` had, newest first, and then those of the snapshot that the
    caches were made from; each only once. Empty when nothing is known."""
    found: List[Record] = []
    for run_id in reversed(runs_of(base, folders)):
        told = records.read_record(records.run_folder(base, run_id), contract.FINGERPRINT) or {}
        made = maker(told.get("identity"))
        if made is not None:
            found.append(dict(made, run_id=run_id))
    seeded = (records.read_record(base, SEEDED) or {}).get("snapshot")
    if isinstance(seeded, str):
        manifest = records.read_record(snapshot_folder(base, seeded), MANIFEST) or {}
        earlier = manifest.get("made_by")
        found += [one for one in earlier if isinstance(one, dict)] if isinstance(earlier, list) else []
    distinct: List[Record] = []
    for one in found:
        if all(one.get("hard") != other.get("hard") for other in distinct):
            distinct.append(one)
    return distinct[:MAX_MAKERS]


def maker(identity: Any) -> Record | None:
    """{"hard": what the keys of a cache hold, "soft": what may change what is compiled}, of a fingerprint's identity.

    A value that is not known is None. builds: a hash over what the package's RECORD lists, its .py files among it."""
    if not isinstance(identity, dict):
        return None
    torch, packages, builds = (_mapping(identity.get(name)) for name in ("torch", "packages", "builds"))
    version = str(_mapping(identity.get("python")).get("version") or "")
    gpus = identity.get("gpus")
    rows = [_mapping(gpu) for gpu in gpus] if isinstance(gpus, list) else None
    spec = _mapping(identity.get("spec"))
    return {
        "hard": {
            "torch": torch.get("version"),
            "torch_build": builds.get("torch"),
            "cuda": torch.get("cuda"),
            "triton": packages.get("triton"),
            "triton_build": builds.get("triton"),
            "python": ".".join(version.split(".")[:2]) or None,
            "gpus": sorted({str(row.get("name")) for row in rows}) if rows is not None else None,
            "capability": _capabilities(rows),
        },
        "soft": {
            "code": _mapping(identity.get("release")).get("tree_hash"),
            "settings": spec.get("settings"),
            "command": spec.get("argv"),
            "driver": _mapping(identity.get("driver")).get("version"),
            "gpu_count": len(rows) if rows is not None else None,
        },
    }


def _capabilities(rows: List[Record] | None) -> List[str] | None:
    """`sm_90`, as kernels are built for it; of GPUs of one name there may be two."""
    if rows is None or not all(row.get("capability") for row in rows):
        return None
    return sorted({"sm_" + str(row["capability"]).replace(".", "") for row in rows})


def _mapping(value: Any) -> Record:
    return value if isinstance(value, dict) else {}
