"""Healthy runs of every shape that was seen, made at random: none has a finding above info."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.diagnosis.finding import INFO
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.kill_plan import Choice, KillPlan
from orchestrator.probes.pace import Pace, PaceSample
from tests.unit.cases import GOOD_ID, GPU_MIB, IDENTITY, NOW_S, cache, diagnosed, facts, gpus

PHASES = ("training", "training", "training", "evaluating", "checkpointing")
STARTS = ("loading", "preparing", "compiling")
OURS = Choice(50, 90001, ("nvidia0",), "of the live run 20261129-141500-c3d4", "python train.py", "S")


def lines(chance: random.Random, rate: float, minutes: float) -> Pace:
    """With windows that vary 1.8 times, a slow first line, and pauses to evaluate and to write checkpoints."""
    every_s = chance.choice((5.0, 20.0, 60.0))
    at_s, samples = NOW_S, [PaceSample(NOW_S, 0, rate * 0.05)]
    for number in range(1, int(minutes * 60 / every_s)):
        pause_s = chance.choice((40.0, 200.0)) if number % 25 == 24 else 0.0
        at_s += every_s + pause_s
        told = rate * 1.8 ** (chance.random() - 0.5) * every_s / (every_s + pause_s)
        used = tuple(mib * chance.uniform(0.97, 1.0) for mib in GPU_MIB)
        samples.append(PaceSample(at_s, number, told, used, (chance.uniform(58_000.0, 62_000.0),) * 8))
    return Pace(tuple(samples), "metrics.jsonl")


def on_purpose(chance: random.Random) -> dict[str, Any]:
    """What a person changes from one run to the next."""
    spec = dict(IDENTITY["spec"])
    changes: dict[str, Any] = {}
    if chance.random() < 0.3:
        spec["settings"] = {"steps": chance.choice((500, 3000, 20_000)), "log.every_steps": 5}
    if chance.random() < 0.3:
        spec["resume_from"] = "/root/orch/runs/20261122-101500-a1b2/checkpoints/step-200"
    if chance.random() < 0.3:
        changes["data"] = {"files": 1100, "bytes": 110_000_000_000, "sample": "e" * 64}
    if chance.random() < 0.2:
        changes["release"] = {**IDENTITY["release"], "tree_hash": "b" * 64, "git": {"commit": "2" * 40}}
    if chance.random() < 0.2:
        changes["variables"] = {"values": {"NCCL_DEBUG": "INFO"}, "hashed": {}, "key": "k"}
    if chance.random() < 0.2:
        packages = {**IDENTITY["packages"], "wandb": "0.21", "tqdm": "4.67"}
        changes |= {"packages": packages, "lock": "b" * 64}
    return {**changes, "spec": spec}


def run_of(chance: random.Random) -> Any:
    counters = {"compiled": {"compiles": 9, "cache_hits": 18, "cache_misses": 0, "fallbacks": 0, "recompiles": 0}}
    waits = {"wait_shares": {"drafter": chance.random(), "target": chance.random()}}
    silent_s = chance.choice((0.5, 20.0, 200.0))
    kind = chance.choice(("training", "training", "start", "over", "stopped", "young"))
    if kind == "start":
        phase = chance.choice(STARTS)
        about: dict[str, Any] = {"phase": phase, "step": None, "phase_started_at": NOW_S - chance.uniform(0, 600)}
        cold = cache(None, None) if chance.random() < 0.5 else None
        return facts(cache_before=cold, silent_s=silent_s, compile_done=1, compile_total=9, **about)
    if kind == "young":
        return facts(phase_started_at=NOW_S - 60, tokens_per_s=chance.uniform(500, 30_000), **counters)
    pace = lines(chance, 21_000.0 * chance.uniform(0.93, 1.07), chance.uniform(10, 90))
    if kind in ("over", "stopped"):
        code = 0 if kind == "over" else 3
        ended = {"exit_code": code, "started_at": NOW_S - 4000, "ended_at": NOW_S}
        phase = "done" if kind == "over" else "stopping"
        return facts(phase=phase, exit_record=ended, pace=pace, checkpoints=("step-200",), **counters)
    about = {"phase": chance.choice(PHASES), "phase_started_at": NOW_S - 300}
    return facts(pace=pace, silent_s=silent_s, **about, **counters, **waits)


@pytest.mark.parametrize("seed", range(100))
def test_a_healthy_run_has_no_finding_above_info(seed: int) -> None:
    chance = random.Random(seed)
    good = facts(
        GOOD_ID,
        exit_record={"exit_code": 0, "started_at": NOW_S - 90_000, "ended_at": NOW_S - 86_000},
        pace=lines(chance, 21_000.0, 40.0),
        wait_shares={"drafter": chance.random(), "target": chance.random()},
        compiled={"compiles": 9},
    )
    clock = {"sm_clock_mhz": chance.choice((1300, 1755, 1980)), "utilization_percent": chance.choice((0, 60, 100))}
    reasons = chance.choice(((), ("sw_power_cap",), ("gpu_idle",), None))
    mine = KillPlan((), (), (OURS,) if chance.random() < 0.5 else (), ())
    found = diagnosed(
        run=run_of(chance),
        good=good,
        identity_of_run=on_purpose(chance),
        gpus=tuple(replace(gpu, temperature_c=chance.randint(30, 84)) for gpu in gpus(throttle=reasons, **clock)),
        processes=mine,
        container=ContainerFact(5.0, int(chance.uniform(0.1, 0.95) * 2**40), 2**40, None),
        clock_offset_s=chance.uniform(-4, 4),
        kernel_log=chance.choice(((), ("GPU 7: the host's kernel reported Xid 63 (row remapping)",), None)),
    )
    assert [(one.id, one.what, one.evidence) for one in found.findings if one.severity != INFO] == []
