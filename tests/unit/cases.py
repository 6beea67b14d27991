"""Cases for signatures: a healthy one with the field's figures, to be changed in one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.diagnosis.case import Case, Machine, RunFacts, edited_files
from orchestrator.diagnosis.comparable import comparable_facts
from orchestrator.diagnosis.diagnose import Diagnosis, diagnose
from orchestrator.diagnosis.diff import compare
from orchestrator.diagnosis.finding import INFO
from orchestrator.ledger.records import parse_run_record
from orchestrator.probes.compile_cache import CacheFolder, CompileCache
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.kill_plan import KillPlan
from orchestrator.probes.log_reading import read_log
from orchestrator.probes.pace import Pace, pace_of_log, parse_metrics
from tests.unit.facts import PAYLOAD

NOW_S = 1_764_500_000.0
GOOD_ID, RUN_ID = "20261122-101500-a1b2", "20261129-141500-c3d4"
WARM_BYTES, WARM_GRAPHS = 353_000_000, 4120
GPU_MIB = (61_000.0, 61_000.0, 61_000.0, 61_000.0, 61_000.0, 72_000.0, 72_000.0, 72_000.0)
IDENTITY: Mapping[str, Any] = {
    "release": {
        "tree_hash": "a" * 64,
        "listing": {"train.py": "1" * 64},
        "git": {"commit": "1" * 40, "branch": "main"},
    },
    "edited": {},
    "package_edits": {},
    "packages": {"torch": "2.11.0+cu128", "transformers": "5.6.0", "nvidia-cudnn-cu12": "9.10", "wandb": "0.20"},
    "origins": {},
    "lock": "a" * 64,
    "builds": {"torch": "1"},
    "torch": {"version": "2.11.0+cu128", "cuda": "12.8", "git_version": "f" * 40},
    "driver": {"version": "580.95.05"},
    "gpus": [{"name": "NVIDIA H200", "memory_total_mib": 143771}] * 8,
    "python": {"version": "3.12.3", "executable": "/root/venv/bin/python"},
    "variables": {"values": {}, "hashed": {}, "key": "k"},
    "spec": {"settings": {"steps": 3000}, "argv": ["python", "train.py"], "targets": 5, "drafters": 3},
    "data": {"files": 902, "bytes": 90_200_000_000, "sample": "d" * 64},
    "limits": {"memory_bytes": 1 << 40, "cpu_cores": "none", "cpus": [0, 1, 2, 3], "shm_bytes": 1 << 36},
    "expected": {},
}
RUNTIME: Mapping[str, Any] = {
    "torch": "2.11.0+cu128",
    "compiler_settings": {
        name: {} for name in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
    },
    "replaced_functions": {},
}


def identity(**changes: Any) -> dict[str, Any]:
    return {"schema": "orch.fingerprint/2", "identity": {**IDENTITY, **changes}, "observed": {}, "unknown": {}}


def cache(size: int | None = WARM_BYTES, graphs: int | None = WARM_GRAPHS) -> CompileCache:
    folder = "/tmp/torchinductor_root"
    return CompileCache((CacheFolder("inductor", folder, bool(size), size, graphs, graphs, NOW_S, True, 0),))


def metrics(
    rate: float,
    *,
    minutes: float = 30.0,
    memory: tuple[float, ...] = GPU_MIB,
    wobble: float = 0.3,
    swing: float = 0.0,
    peak_mib: float = 60_000.0,
    more: Mapping[str, Any] | None = None,
) -> Pace:
    """A line each 20 s, whose rates vary by `wobble` (1.8 times from the lowest to the highest at 0.29)."""
    lines = []
    for number in range(int(minutes * 3)):
        turn = (-1.0, 0.7, -0.7, 1.0, 0.0)[number % 5]
        used = [gpu * (1 - swing * (number % 4) / 3) for gpu in memory]
        line = {"time": NOW_S + 20.0 * number, "step": 20 * number, "tokens_per_s": rate * (1 + wobble * turn)}
        lines.append({**line, "gpu_memory_used_mib": used, "peak_memory_mib": [peak_mib] * len(used), **(more or {})})
    pace = parse_metrics("\n".join(map(json.dumps, lines)), begins_whole=True)
    assert pace is not None
    return pace


def facts(
    run_id: str = RUN_ID,
    *,
    phase: str = "training",
    log: str = "",
    exit_record: Mapping[str, Any] | None = None,
    pace: Pace | None = None,
    cache_before: CompileCache | None = None,
    runtime: Mapping[str, Any] | None = RUNTIME,
    silent_s: float = 1.0,
    session: Mapping[str, Any] | None = None,
    checkpoints: tuple[str, ...] = (),
    use: Mapping[str, Any] | None = None,
    **status: Any,
) -> RunFacts:
    """exit_record None: it goes on."""
    live = exit_record is None
    run = {
        "id": run_id,
        "folder": f"/root/orch/runs/{run_id}",
        "spec": {"argv": ["python", "train.py"], "created_at": NOW_S - 3600, "session": "dflash"},
        "status": {
            "phase": phase,
            "step": 1200,
            "total_steps": 3000,
            "loss": 2.0,
            "updated_at": NOW_S - silent_s,
            **status,
        },
        "exit": exit_record,
        "training_alive": live,
        "wrapper_alive": live,
        "recorded": {},
        "cache": use,
        "checkpoints": [{"name": name, "complete": True} for name in checkpoints],
        "log": {"size": len(log), "mtime": NOW_S - silent_s},
    }
    told = {"now": NOW_S, "run": run, "live": {"held": live, "content": {"run_id": run_id}}, "session": session}
    record = parse_run_record(told)
    assert record is not None
    reading = read_log(log)
    return RunFacts(
        run_id=run_id,
        record=record,
        runtime=runtime,
        cache_before=cache() if cache_before is None else cache_before,
        pace=pace if pace is not None else pace_of_log(reading, NOW_S - 3600, NOW_S - silent_s),
        log=reading,
    )


def gpus(count: int = 8, **changes: Any) -> tuple[GpuFact, ...]:
    about: dict[str, Any] = {
        "utilization_percent": 98,
        "temperature_c": 62,
        "power_w": 690.0,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "throttle": ("sw_power_cap",),
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        **changes,
    }
    return tuple(GpuFact(index, "NVIDIA H200", 143771, 61_000, **about) for index in range(count))


def case(
    *,
    run: RunFacts | None = None,
    good: RunFacts | None = None,
    now: Mapping[str, Any] | None = None,
    identity_of_run: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Case:
    """Healthy, at 21 Ktok/s like the last good run, but for what is changed."""
    run = run if run is not None else facts(pace=metrics(20_700.0))
    good = good if good is not None else facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0))
    there = comparable_facts(identity(), good.runtime)
    fingerprint = identity(**(identity_of_run or {}))
    here = comparable_facts(fingerprint, run.runtime)
    about: dict[str, Any] = {
        "target": "ct200",
        "label": "ct200 (container 200 on root@10.1.2.6)",
        "now_s": NOW_S,
        "payload": PAYLOAD,
        "run": run,
        "good": good,
        "good_why": "marked good",
        "comparison": compare(there, here, good.cache_before, run.cache_before),
        "since": compare(here, comparable_facts(identity(**(now or identity_of_run or {})), None), None, None),
        "edited_at_start": edited_files(here),
        "variables": here["variables"],
        "cache_now": cache(),
        "snapshots": (),
        "environment": (),
        "gpus": gpus(),
        "processes": KillPlan((), (), (), ()),
        "container": ContainerFact(86_400.0, 200_000_000_000, 1 << 40, None),
        "machine": Machine(disk_free_bytes=900_000_000_000, inodes_free=10**8, shm_free_bytes=1 << 36),
        "clock_offset_s": 0.0,
        **changes,
    }
    return Case(**about)


def diagnosed(**changes: Any) -> Diagnosis:
    return diagnose(case(**changes))


def ids(found: Diagnosis, *, info: bool = False) -> list[str]:
    return [one.id for one in found.findings if info or one.severity != INFO]


def changed(run: RunFacts, **changes: Any) -> RunFacts:
    return replace(run, **changes)
