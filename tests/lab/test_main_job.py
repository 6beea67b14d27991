"""The main job as a user types it, against the shipped inventory: a drafter is trained and proved.

Minutes, not seconds: it really trains.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.place import PROJECT, said


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", words[0], "-i", str(PROJECT / "inventory.yaml"), *words[1:]]


def orch(lab: RealLab, folder: Path, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    return lab.run(argv(*words), cwd=folder, env={"PYTHONPATH": str(PROJECT)}, timeout_s=timeout_s)


def first_line(lab: RealLab, folder: Path, *words: str) -> bytes:
    """Of a command that goes on: then its reader leaves."""
    process = lab.popen(argv(*words), cwd=folder, env={"PYTHONPATH": str(PROJECT)}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stream:
        line = stream.readline()
    process.terminate()
    process.wait(30)
    return line


@pytest.mark.real_lab
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deploy_and_launch_train_a_drafter_that_helps(real_lab: RealLab, tmp_path: Path) -> None:
    before = real_lab.pct_starts()
    deployed = orch(real_lab, tmp_path, "deploy")
    assert deployed.returncode == 0, said(deployed)
    launched = orch(real_lab, tmp_path, "launch", "--wait", "end", timeout_s=840)
    assert launched.returncode == 0, said(launched)
    status = orch(real_lab, tmp_path, "status")
    assert b"ended well" in status.stdout, said(status)
    logs = orch(real_lab, tmp_path, "logs")
    assert re.fullmatch(r"acceptance length: \d\.\d\d", logs.stdout.decode().splitlines()[-1])
    pulled = orch(real_lab, tmp_path, "pull", "--to", "pulled")
    assert pulled.returncode == 0, said(pulled)
    assert real_lab.pct_starts() - before == 5
    assert b"ended well" in first_line(real_lab, tmp_path, "status", "--watch")
    reset = orch(real_lab, tmp_path, "reset", "--kill-gpus", "--clear-cache", "--yes")
    assert reset.returncode == 0 and b"free of this target on 8 GPUs" in reset.stdout, said(reset)

    result = json.loads((tmp_path / "pulled" / "result.json").read_text())
    assert result["block_size"] == 8
    # On held-out prompts, after responses that the target itself wrote. Three seeds gave 5.96 to 6.20.
    assert "target wrote 800 responses" in (tmp_path / "pulled" / "run.log").read_text()
    assert result["acceptance_length"] >= 5
    assert result["acceptance_length_without_context"] < 0.7 * result["acceptance_length"]
    assert result["acceptance_length_untrained"] < 1.2
    assert result["lossless"] is True
    assert result["prompts"] == 24 and result["tokens"] >= 512
