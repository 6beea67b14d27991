"""PURE: is the target fit for this launch? The agent's facts in, problems and notes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.inventory.model import Payload
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.gpu_csv import parse_gpu_csv
from orchestrator.probes.values import as_int, as_mapping, as_str

GIB = 1024**3
LOW_INODES = 1000


@dataclass(frozen=True)
class Problem:
    text: str
    way_out: str = ""


@dataclass(frozen=True)
class Preflight:
    """What the target said. Unknown is None."""

    live_run: str | None
    release: str | None
    """Absolute path of the live release."""
    python_path: str | None
    python_version: str | None
    python_error: str | None
    tmux_error: str | None
    free_disk_bytes: int | None
    free_inodes: int | None
    gpus: tuple[GpuFact, ...] | None
    gpu_error: str | None
    missing_paths: tuple[str, ...]


def parse_preflight(answer: Mapping[str, Any], release: str | None) -> Preflight:
    """`answer` as the agent's op `preflight` gives it; release from `run_facts`."""
    python, tmux, smi = answer["python"], answer["tmux"], answer["nvidia_smi"]
    seen = as_mapping(answer.get("gpus")).get("identity")
    smi_gpus = parse_gpu_csv(smi["csv"]).gpus if smi and smi["error"] is None else None
    live = answer["live"]
    return Preflight(
        live_run=str((live.get("content") or {}).get("run_id") or "unknown") if live["held"] else None,
        release=release,
        python_path=python["path"],
        python_version=python["version"],
        python_error=python["error"],
        tmux_error=tmux["error"] if tmux else None,
        free_disk_bytes=answer["disk"]["free_bytes"],
        free_inodes=answer["disk"]["free_inodes"],
        gpus=_gpus(seen) if isinstance(seen, list) else smi_gpus,
        gpu_error=smi["error"] if smi else None,
        missing_paths=tuple(path for path, there in answer["paths"].items() if not there),
    )


def _gpus(rows: Sequence[object]) -> tuple[GpuFact, ...]:
    """As the fingerprint has them: which there are, and nothing of the moment."""
    told = map(as_mapping, rows)
    return tuple(
        GpuFact(as_int(row.get("index")), as_str(row.get("name")), as_int(row.get("memory_total_mib")), None)
        for row in told
    )


def find_problems(payload: Payload, facts: Preflight) -> tuple[Problem, ...]:
    """Everything that keeps this launch from being sensible, all at once."""
    found = []
    if facts.release is None:
        found.append(Problem("nothing has been deployed", "orch deploy"))
    if payload.command[0] == "python" and facts.python_error is not None:
        found.append(
            Problem(
                f"python: {facts.python_error}",
                "make that environment, or name another interpreter in the payload's `python:`",
            )
        )
    wanted = payload.min_free_disk_gib
    if facts.free_disk_bytes is not None and facts.free_disk_bytes < wanted * GIB:
        free = facts.free_disk_bytes / GIB
        found.append(
            Problem(f"disk: {free:.1f} GiB free, {wanted:g} wanted", "free some, or lower `min_free_disk_gib:`")
        )
    if facts.free_inodes is not None and facts.free_inodes < LOW_INODES:
        found.append(Problem(f"disk: only {facts.free_inodes} inodes free", "remove files that are no longer needed"))
    if payload.devices:
        found += _gpu_problems(payload.devices, facts)
    for path in facts.missing_paths:
        found.append(Problem(f"{path} is not there", "see `data:` and `model:` of the payload"))
    return tuple(found)


def _gpu_problems(wanted: int, facts: Preflight) -> list[Problem]:
    way_out = "see `topology:` and `devices:` of the payload; look with `orch exec -- nvidia-smi`"
    if facts.gpus is None:
        return [Problem(f"GPUs: {facts.gpu_error or 'not known'}; {wanted} wanted", way_out)]
    if len(facts.gpus) < wanted:
        return [Problem(f"GPUs: {len(facts.gpus)} there, {wanted} wanted", way_out)]
    return []


def notes(payload: Payload, facts: Preflight) -> tuple[str, ...]:
    """What the person should know though it keeps nothing from starting."""
    if payload.session and facts.tmux_error:
        return (f"{facts.tmux_error}: the run has no session to attach to; `orch logs -f` follows it",)
    return ()
