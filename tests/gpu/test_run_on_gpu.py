"""The whole trainer on one GPU, through its own entry: 2 target threads, 3 drafters, 3 lengths, a cold cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import contract
from tiny import PAYLOAD, TINY

SETTINGS = {
    **TINY,
    "device": "cuda",
    "steps": 40,
    "target.head_size": 16,
    "train.length_buckets": 3,
    "checkpoint.every_steps": 20,
    "compile.strict": True,
}


def test_two_targets_and_three_drafters_train_without_a_fallback(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    spec = contract.RunSpec(run_id="run", settings=SETTINGS, targets=2, drafters=3)
    contract.write_json(folder / contract.RUN_SPEC, spec)
    environment = {
        **os.environ,
        contract.RUN_DIR_VARIABLE: str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }
    argv = [sys.executable, str(PAYLOAD / "train.py")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=400)
    print(done.stdout[-3000:])
    assert done.returncode == contract.EXIT_OK, done.stderr[-3000:]
    status = json.loads((folder / contract.STATUS).read_text())
    assert status["compiled"]["fallbacks"] == status["compiled"]["recompiles"] == 0
    assert status["compiled"]["compiles"] == 3
    assert "compiling 3 of 3" in done.stdout
    assert json.loads((folder / contract.RESULT).read_text())["prompts"] == SETTINGS["evaluate.prompts"]
