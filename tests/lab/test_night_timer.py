"""The nightly retrain as its timer starts it, without a shell: twice, from nothing to a published drafter."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import Lab
from tests.lab.place import PROJECT, Place, said

SMALLEST = {
    "steps": 4,
    "text.documents": 24,
    "text.tokens": 48,
    "text.prompt_tokens": 16,
    "target.steps": 3,
    "target.batch": 2,
    "target.hidden_size": 32,
    "target.intermediate_size": 32,
    "target.heads": 2,
    "target.kv_heads": 1,
    "drafter.intermediate_size": 32,
    "train.batch": 2,
    "train.anchors": 4,
    "checkpoint.every_steps": 2,
    "log.every_steps": 1,
    "evaluate.prompts": 2,
    "evaluate.control_prompts": 1,
    "evaluate.new_tokens": 10,
}
VARIABLES = {"free_disk_gib": "0.01", "least_percent": "1", "within": "5m", "tau_drop": "9"}


class Timer(Place):
    """A place whose nights are begun by the unit's own command line."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        super().__init__(lab, folder, name)
        self.drafter = folder / "drafter"
        self.seed(1)
        secrets = folder / "secrets"
        # What lets the suite's guard see that this is a lab: known to this shell, and so missing in a timer.
        secrets.write_text(f"ORCH_LAB_RECORD={lab.record.file}\n")
        secrets.chmod(0o600)
        self.told = folder / "told"
        teller = folder / "tell"
        teller.write_text(f'#!/bin/sh\necho "$ORCH_OUTCOME" >>"{self.told}"\n')
        teller.chmod(0o755)
        variables = {**VARIABLES, "publish_to": str(self.drafter), "tell": str(teller)}
        words = [f"--var={key}={value}" for key, value in variables.items()]
        scheduled = self.orch(
            "schedule", str(PROJECT / "playbooks/nightly.yaml"), "--at", "02:00", "--tz", "Europe/Berlin",
            "--offline", "--yes", "--env-file", str(secrets), *words, timeout_s=120,
        )  # fmt: skip
        assert scheduled.returncode == 0, said(scheduled)
        self.units = folder / "config" / "systemd" / "user"

    def seed(self, seed: int) -> None:
        self.write(
            folder=str(PROJECT / "remote_payload"),
            command=["python", "train.py"],
            python="/root/venv/bin/python",
            topology={"targets": 1, "drafters": 1},
            environment_check="off",
            settings={**SMALLEST, "seed": seed},
        )

    def environment(self) -> dict[str, str]:
        own = {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("config", "state", "cache")}
        path = os.pathsep.join([str(PROJECT), os.environ["PYTHONPATH"]])
        return {**super().environment(), **own, "PYTHONPATH": path}

    def elapse(self) -> subprocess.CompletedProcess[bytes]:
        """What systemd does when the timer elapses."""
        lines = (self.units / "orch-nightly.service").read_text().splitlines()

        def values(key: str) -> list[str]:
            return [line.partition("=")[2] for line in lines if line.startswith(key + "=")]

        (command,), (folder,), (secrets,) = values("ExecStart"), values("WorkingDirectory"), values("EnvironmentFile")
        variables = [word for value in values("Environment") for word in shlex.split(value)]
        variables += Path(secrets).read_text().splitlines()
        argv = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(command)]
        home = f"HOME={self.lab.environment()['HOME']}"
        return self.lab.run(["env", "-i", home, *variables, *argv], cwd=Path(folder), timeout_s=280)


@pytest.fixture
def timer(real_lab: RealLab, tmp_path: Path) -> Iterator[Timer]:
    timer = Timer(real_lab, tmp_path, "A")
    yield timer
    timer.clean()


@pytest.mark.real_lab
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_nights_from_the_timer_to_a_published_drafter(timer: Timer) -> None:
    if shutil.which("systemd-analyze"):
        files = [str(path) for path in sorted(timer.units.glob("orch-nightly.*"))]
        checked = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
        assert (len(files), checked.returncode, checked.stderr) == (2, 0, "")
        calendars = [
            line.partition("=")[2] for line in Path(files[1]).read_text().splitlines() if line.startswith("OnCalendar=")
        ]
        checked = subprocess.run(
            ["systemd-analyze", "calendar", *calendars], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0 and checked.stdout.count("Normalized form") == len(calendars) > 10
    trees = []
    for night in (1, 2):
        timer.seed(night)
        done = timer.elapse() if night == 1 else timer.orch("schedule", "run-now", "nightly", timeout_s=280)
        assert done.returncode == 0, said(done)
        there = json.loads(timer.ok("publish", "--to", str(timer.drafter), "--list", "--json"))
        current = there["publications"][0]
        assert current["tree_hash"] == there["current"] and current["run_id"] == timer.status()["run"]["run_id"]
        assert current["acceptance_length"] >= 1 and current["lossless"] is True
        described = json.loads((timer.drafter / "current" / "config.json").read_text())
        assert described["architectures"] == ["DFlashDraftModel"]
        assert timer.told.read_text().split() == ["done"] * night
        trees.append(there["current"])
        assert there["previous"] == (trees[0] if night == 2 else None)
    assert trees[0] != trees[1]
    assert sys.executable in (timer.units / "orch-nightly.service").read_text()
