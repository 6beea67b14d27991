"""PURE: what goes into run.json, and run ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Payload, Target

CACHE_VARIABLES = {
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
    "extensions": "TORCH_EXTENSIONS_DIR",
}


def new_run_id(now_s: float, token: str) -> str:
    """`20261129-141500-a1b2`: sorts by time (UTC); the token keeps two controllers apart."""
    return f"{datetime.fromtimestamp(now_s, UTC):%Y%m%d-%H%M%S}-{token}"


def parse_settings(pairs: Sequence[str]) -> dict[str, object]:
    """`key=value` words; a value that reads as JSON is taken as that, else as text. Raises UsageError."""
    settings: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--set needs KEY=VALUE, got {pair!r}", way_out="orch launch --set steps=100")
        try:
            settings[key] = json.loads(text)
        except ValueError:
            settings[key] = text
    return settings


def cache_folders(target: Target, payload: Payload | None) -> dict[str, str]:
    """Environment variable -> folder; always all three, so that no default below /tmp is ever used unnoticed."""
    live = f"{target.base}/caches/live"
    named = {kind: getattr(payload.caches, kind) if payload else None for kind in CACHE_VARIABLES}
    return {variable: named[kind] or f"{live}/{kind}" for kind, variable in CACHE_VARIABLES.items()}


def build_run_spec(
    target: Target,
    payload: Payload,
    *,
    run_id: str,
    settings: Mapping[str, object],
    resume_from: str | None,
    who: str,
    now_s: float,
) -> dict[str, object]:
    """The record a payload reads (contract.RunSpec) and orch keeps; the agent completes it over there."""
    topology = payload.topology
    return {
        "run_id": run_id,
        "target": target.name,
        "payload": payload.name,
        "settings": {**payload.settings, **settings},
        "targets": topology.targets if topology else 1,
        "drafters": topology.drafters if topology else 1,
        "data": payload.data,
        "model": payload.model,
        "resume_from": resume_from,
        "launched_by": who,
        "launched_at_s": now_s,
    }
