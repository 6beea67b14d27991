"""Healthy runs of many shapes: no finding above info. A tool that cries wolf is not looked at when it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.diagnosis.diagnose import Diagnosis
from orchestrator.probes.pace import Pace
from tests.unit.cases import GPU_MIB, IDENTITY, cache, diagnosed, facts, gpus, ids, metrics

MINUTE_S = 60.0
ENDED = {"exit_code": 0, "started_at": 1.0, "ended_at": 7201.0}
STEPS = "".join(f"step {n * 20}/3000 loss {9 / n:.3f} {21.3 + (n % 3) / 5:.1f} Ktok/s\n" for n in range(1, 60))
IT_S = "".join(f"step {n}/3000 loss {9 / n:.3f} {2.4 + (n % 3) / 10:.2f} it/s\n" for n in range(1, 200))
BARS = "".join(
    f"\rtrain:  {n:3}%|{'#' * (n // 10):10}| {n * 30}/3000 [{n // 2:02}:00<{50 - n // 2:02}:00,  1.02it/s, loss=2.1]"
    for n in range(1, 80)
)
DICTS = "".join(f"{{'loss': {9 / n:.4f}, 'learning_rate': 0.0001, 'epoch': {n / 100}}}\n" for n in range(1, 100))
SECONDS_A_STEP = "".join(f"iter {n}: loss {9 / n:.3f}, time 412.31ms, mfu 34.40%\n" for n in range(1, 100))
RETRIED = f"""{STEPS}Traceback (most recent call last):
  File "/root/upload.py", line 40, in put
    client.upload_file(path, bucket, key)
botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://store.example/b/k"
upload failed, retrying in 30 s (1 of 5)
uploaded step-1200 on retry
{STEPS}"""
WARNINGS = f"""/root/venv/lib/python3.12/site-packages/torch/_inductor/compile_fx.py:282: Warning: TF32 is off
W1129 14:20:11.12 7 torch/_inductor/utils.py:1436] [0/0] Not enough SMs to use max_autotune_gemm mode
gpu-box:7:7 [0] NCCL INFO cudaDriverVersion 13000
wandb: WARNING Calling wandb.login() after wandb.init() has no effect.
0 errors, 0 out of memory retries
{STEPS}"""


def stepped(rates: list[float]) -> Pace:
    """A line every 20 s with these rates."""
    return Pace(
        tuple(
            sample.__class__(**{**sample.__dict__, "tokens_per_s": rate})
            for sample, rate in zip(metrics(21_000.0, minutes=len(rates) / 3).samples, rates, strict=True)
        ),
        "metrics.jsonl",
    )


def identity_with(**spec: Any) -> dict[str, Any]:
    return {"spec": {**IDENTITY["spec"], **spec}}


def healthy(**about: Any) -> Callable[[], Diagnosis]:
    """about: of the run (tests.unit.cases.facts); `pace` may be a rate."""

    def judged() -> Diagnosis:
        case = about.pop("case", {})
        return diagnosed(run=facts(**about), **case)

    return judged


RUNS: dict[str, Callable[[], Diagnosis]] = {
    "5 + 3, for hours": healthy(pace=metrics(20_700.0, minutes=400)),
    "1 + 1, slower by its shape": healthy(
        pace=metrics(6_100.0, memory=(61_000.0, 72_000.0)),
        case={"identity_of_run": identity_with(targets=1, drafters=1)},
    ),
    "for a minute only": healthy(pace=metrics(14_000.0, minutes=1), phase_started_at=1_764_500_000.0 - 60),
    "windows that vary 1.8 times": healthy(pace=metrics(20_700.0, wobble=0.29)),
    "windows that vary 3 times": healthy(pace=metrics(20_700.0, wobble=0.5)),
    "an evaluation of a minute between two lines, now and then": healthy(
        pace=stepped([21_000.0 if n % 7 else 4_000.0 for n in range(90)])
    ),
    "a checkpoint each third line": healthy(pace=stepped([21_400.0 if n % 3 else 15_000.0 for n in range(90)])),
    "evaluating for ten minutes, with signs": healthy(
        phase="evaluating", pace=metrics(20_700.0), silent_s=10 * MINUTE_S
    ),
    "checkpointing, slow disk": healthy(phase="checkpointing", pace=metrics(20_700.0), silent_s=4 * MINUTE_S),
    "loading for nine minutes, silent": healthy(phase="loading", step=None, silent_s=9 * MINUTE_S),
    "compiling for ten minutes, graph by graph": healthy(
        phase="compiling", step=None, compile_done=5, compile_total=8, silent_s=2 * MINUTE_S, cache_before=cache(0, 0)
    ),
    "a foreign payload, its first step after ten minutes": healthy(
        phase=None, step=None, runtime=None, silent_s=10 * MINUTE_S
    ),
    "prints Ktok/s": healthy(log=STEPS, runtime=None),
    "prints it/s": healthy(log=IT_S, runtime=None),
    "prints bars": healthy(log=BARS, runtime=None),
    "prints dicts": healthy(log=DICTS, runtime=None),
    "prints milliseconds a step": healthy(log=SECONDS_A_STEP, runtime=None),
    "ended well": healthy(phase="done", exit_record=ENDED, pace=metrics(20_700.0)),
    "stopped, with a checkpoint": healthy(
        phase="stopping", exit_record={**ENDED, "exit_code": 3}, pace=metrics(20_700.0), checkpoints=("step-1200",)
    ),
    "stopped before there was a checkpoint": healthy(
        phase="stopping", step=None, exit_record={**ENDED, "exit_code": 143}
    ),
    "resumed": healthy(
        pace=metrics(20_700.0), case={"identity_of_run": identity_with(resume_from="/root/orch/runs/x/checkpoints/y")}
    ),
    "with more data": healthy(
        pace=metrics(20_100.0),
        case={"identity_of_run": {"data": {"files": 1100, "bytes": 110_000_000_000, "sample": "e" * 64}}},
    ),
    "for more steps, with other logging": healthy(
        pace=metrics(20_100.0),
        case={"identity_of_run": identity_with(settings={"steps": 9000, "log.every_steps": 50})},
    ),
    "with a cache that has grown": healthy(pace=metrics(21_000.0), cache_before=cache(420_000_000, 5000)),
    "7 % below the good one": healthy(pace=metrics(19_800.0)),
    "faster than the good one": healthy(pace=metrics(27_000.0)),
    "at the power limit": healthy(pace=metrics(20_700.0), case={"gpus": gpus(power_w=699.0, sm_clock_mhz=1500)}),
    "GPUs idle while it loads": healthy(
        phase="loading", step=None, case={"gpus": gpus(utilization_percent=0, power_w=77.0, sm_clock_mhz=345)}
    ),
    "memory that grows to its place": healthy(
        pace=metrics(20_700.0, memory=tuple(gpu + 3_000 for gpu in GPU_MIB), swing=0.05)
    ),
    "an upload that failed once and was retried": healthy(log=RETRIED, pace=metrics(20_700.0)),
    "a log full of warnings": healthy(log=WARNINGS, pace=metrics(20_700.0)),
    "a new commit": healthy(
        pace=metrics(20_700.0),
        case={"identity_of_run": {"release": {**IDENTITY["release"], "listing": {"train.py": "2" * 64}}}},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_healthy_run_gives_no_finding_above_info(name: str) -> None:
    found = RUNS[name]()
    assert ids(found) == [], found.findings
