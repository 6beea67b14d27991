"""A payload that speaks the contract: steps are waited for, settings arrive, a stop saves, a resume goes on."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import PROJECT, Place, said

SPEAKER = '''\
"""Counts steps, says so by the contract, saves when asked to stop."""
import signal
import sys
import time
from pathlib import Path

import contract

folder = contract.run_dir()
spec = contract.read_run_spec(folder)
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
step = int(Path(spec.resume_from, "step").read_text()) if spec.resume_from else 0
print("from", step, "settings", spec.settings, "topology", spec.targets, spec.drafters, flush=True)


def save():
    checkpoint = folder / contract.CHECKPOINTS / f"step-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "step").write_text(str(step))
    (checkpoint / contract.CHECKPOINT_MARKER).touch()


while step < spec.settings.get("steps", 3):
    step += 1
    contract.write_json(folder / contract.STATUS, contract.Status("training", step, loss=1 / step))
    time.sleep(0.02)
    if stopping:
        contract.write_json(folder / contract.STATUS, contract.Status("stopping", step))
        save()
        sys.exit(contract.EXIT_STOPPED_WITH_CHECKPOINT)
contract.write_json(folder / contract.RESULT, {"reached": step})
'''

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"c{next(numbers)}")
    (place.payload / "speaker.py").write_text(SPEAKER)
    shutil.copy(PROJECT / "remote_payload" / "contract.py", place.payload)
    place.write(
        command=["python3", "speaker.py"], settings={"lr": 0.1}, topology={"targets": 5, "drafters": 3}, devices=8
    )
    yield place
    place.clean()


def test_steps_settings_stop_and_resume(place: Place) -> None:
    place.ok("deploy")
    assert "training, step " in place.ok("launch", "--wait", "step:3", "--set", "steps=100000", "--set", "name=a b")
    first = place.status()["run"]
    assert first["status"]["step"] >= 3
    assert "settings {'lr': 0.1, 'name': 'a b', 'steps': 100000} topology 5 3" in place.ok("logs")

    assert "stopped (exit code 3)" in place.ok("stop")
    assert "was stopped (exit code 3)" in place.ok("status")
    stopped_at = place.status()["run"]["status"]["step"]

    resumed = place.ok("launch", "--resume", "--wait", "end", "--set", f"steps={stopped_at + 5}")
    assert f"goes on from {place.base}/runs/{first['run_id']}/checkpoints/step-{stopped_at}" in resumed
    assert f"as run {first['run_id']} had them: name=a b" in resumed
    settings = {"lr": 0.1, "name": "a b", "steps": stopped_at + 5}
    assert f"from {stopped_at} settings {settings}" in place.ok("logs")
    assert f"reached: {stopped_at + 5}" in place.ok("status")
    assert "from 0 settings" in (place.ok("launch", "--from-scratch", "--wait", "end") and place.ok("logs"))

    done = place.orch("launch", "--resume", "nothing")
    assert done.returncode == 2 and f"{first['run_id']}:{stopped_at}" in said(done)


def test_missing_gpus_keep_it_from_starting(place: Place) -> None:
    place.ok("deploy")
    place.lab.set_gpus({"devices": [{}]})
    try:
        done = place.orch("launch")
    finally:
        place.lab.set_gpus({})
    assert done.returncode == 10
    assert "8 wanted" in said(done)
    assert place.status()["run"] is None


def test_json_of_status_and_hosts_can_be_relied_on(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    status = place.status()
    assert status["schema"] == "orch.status/2"
    assert status["run"]["state"]["exit"]["exit_code"] == 0
    assert status["run"]["result"] == {"reached": 3}
    assert [gpu["memory_used_mib"] for gpu in status["gpus"]] == [0] * 8
    hosts = json.loads(place.ok("hosts", "--json"))
    assert hosts["schema"] == 1 and hosts["targets"][0]["container_id"] == 200
