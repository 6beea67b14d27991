"""Which checkpoint a run goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.runs import choose_run
from orchestrator.operations.which_run import LAST
from orchestrator.probes.values import as_mapping
from remote_payload import contract


@dataclass(frozen=True)
class Checkpoint:
    path: str
    """Absolute, on the target."""
    run_id: str
    settings: Mapping[str, object]
    """Of the run that saved it."""


async def find_checkpoint(session: AgentSession, target: Target, wanted: str) -> Checkpoint:
    """`last`, RUN or RUN:STEP, RUN being an id or its unique beginning -> a complete checkpoint. Raises UsageError
    listing what there is."""
    listed = await session.request("list_runs", base=target.base)
    return choose_checkpoint(target.base, listed.header["runs"], wanted)


def choose_checkpoint(base: str, runs: list[dict[str, Any]], wanted: str) -> Checkpoint:
    """wanted: `last`, RUN or RUN:STEP. Raises UsageError."""
    run_id, _, step = wanted.partition(":")
    if step and not step.isdecimal():
        raise UsageError(f"--resume takes RUN or RUN:STEP, not {wanted!r}", way_out="orch launch --resume")
    meant = [run["run_id"] for run in runs]
    if run_id not in LAST:
        meant = [choose_run(meant, run_id)] if any(one.startswith(run_id) for one in meant) else []
    candidates = [
        (run["run_id"], entry["name"])
        for run in runs
        for entry in run["checkpoints"]
        if entry["complete"] and run["run_id"] in meant and (not step or entry["name"] == f"step-{step}")
    ]
    if not candidates:
        there = [
            f"{run['run_id']}:{entry['name'].removeprefix('step-')}"
            for run in runs
            for entry in run["checkpoints"]
            if entry["complete"]
        ]
        raise UsageError(
            f"no complete checkpoint for --resume {wanted}; nothing was started",
            evidence="complete: " + (", ".join(there[-10:]) if there else "none"),
            way_out="orch launch   (from scratch)",
        )
    run_of, name = candidates[-1]
    record = next(run for run in runs if run["run_id"] == run_of)
    settings = as_mapping(record.get("settings"))
    return Checkpoint(f"{base}/runs/{run_of}/{contract.CHECKPOINTS}/{name}", run_of, settings)


def kept_settings(resumed: Checkpoint, inventory: Mapping[str, object], asked: Mapping[str, object]) -> str | None:
    """What a run that goes on takes from the earlier one and would not have got otherwise, each with what the inventory
    says now. asked: on the command line. None: nothing."""
    kept = [
        f"{name}={value}" + (f" (the inventory: {inventory[name]})" if name in inventory else "")
        for name, value in resumed.settings.items()
        if name not in asked and inventory.get(name) != value
    ]
    return f"as run {resumed.run_id} had them: {', '.join(kept)}" if kept else None
