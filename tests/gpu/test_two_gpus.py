"""One process a device on two GPUs: what of `two_gpus.py` must hold at any size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parent / "two_gpus.py"
DEADLINE_S = 280

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def measured(folder: Path, *parts: str) -> list[dict[str, Any]]:
    argv = [sys.executable, str(SCRIPT), str(folder), *parts]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    print(done.stdout[-4000:], done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_one_warm_up_serves_both_devices(tmp_path: Path) -> None:
    told = {line["drafter"]: line for line in measured(tmp_path, "warmup") if "cache_hits" in line}
    assert told[0]["cache_misses"] > 0, "the cache was not cold"
    assert told[1]["cache_misses"] == 0
    assert told[1]["cache_hits"] == told[0]["cache_misses"]


def test_both_engines_learn_the_same(tmp_path: Path) -> None:
    told = {line["engine"]: line for line in measured(tmp_path, "trainer") if "losses" in line}
    assert {line["code"] for line in told.values()} == {0}
    assert told["processes"]["losses"] == pytest.approx(told["threads"]["losses"], rel=0.02)
    assert all(line["compiled"]["fallbacks"] == line["compiled"]["recompiles"] == 0 for line in told.values())
