"""The disk is full for a while: the training goes on, and saves again when there is room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import contract
import pytest
from tiny import PAYLOAD, TINY

# In a file system of its own. The log goes to a pipe: the test decides by it.
SCRIPT = """
import json, os, pathlib, subprocess, sys
run, payload = pathlib.Path(sys.argv[1]), sys.argv[2]
(run / "run.json").write_text(sys.argv[3])
process = subprocess.Popen(
    [sys.executable, payload + "/train.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    env={**os.environ, "ORCH_RUN_DIR": str(run), "TMPDIR": "/dev/shm", "PYTHONUNBUFFERED": "1"},
)
said = []
for line in process.stdout:
    said.append(line)
    if line.startswith("step 3/"):
        with (run / "filler").open("wb", buffering=0) as stream:
            try:
                while True: stream.write(bytes(4096))
            except OSError:
                pass
    if "could not be written" in line and "checkpoint of step" in line:
        (run / "filler").unlink(missing_ok=True)
lines = (run / "metrics.jsonl").read_text().splitlines()
print(json.dumps({
    "code": process.wait(60), "log": "".join(said), "steps": [json.loads(line)["step"] for line in lines],
    "status": json.loads((run / "status.json").read_text()),
    "checkpoints": sorted(one.name for one in (run / "checkpoints").iterdir()),
}))
"""
STEPS = 60


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a small file system of its own")
def test_a_training_outlives_a_disk_that_was_full(tmp_path: Path) -> None:
    settings = {**TINY, "steps": STEPS, "checkpoint.every_steps": 20, "checkpoint.keep": 9}
    spec = json.dumps({"run_id": "full", "settings": settings})
    mount = 'mount -t tmpfs -o size=24m none "$1" && exec "$2" -c "$3" "$1" "$4" "$5"'
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, SCRIPT, str(PAYLOAD), spec]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == contract.EXIT_OK, told["log"]
    assert "the run goes on: [Errno 28]" in told["log"]
    assert "records are written again" in told["log"]
    assert "checkpoint of step 20 could not be written (0 MiB free)" in told["status"]["warnings"][0]
    assert told["checkpoints"][-2:] == ["step-40", "step-60"]
    assert 20 not in told["steps"] and told["steps"][-1] == STEPS
