"""`orch doctor` on a lab: healthy runs give nothing above info, a slow and a dead one their cause, and a target that
cannot be reached its way out. The training writes metrics.jsonl as if minutes had passed, so no test has to wait."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import NEIGHBOUR_ID as NEIGHBOUR
from tests.lab.place import Place, said
from tests.lab.watching import Watching
from tests.made_venv import MadeVenv
from tests.waiting import eventually

numbers = itertools.count(1)

TRAIN = '''\
"""A training of 30 minutes whose lines are written at once: its rate; how long it lives, how it fails."""
import json
import os
import sys
import time

rate, lives_s, fails = float(sys.argv[1]), float(os.environ["LIVES_S"]), os.environ["FAILS"]
folder = os.environ["ORCH_RUN_DIR"]
now = time.time()
with open(folder + "/metrics.jsonl", "w") as stream:
    for number in range(90):
        tokens = rate * (1 + 0.28 * (-1, 0.7, -0.7, 1, 0)[number % 5])
        line = {"time": now - 20 * (90 - number), "step": 20 * number, "tokens_per_s": tokens, "loss": 2.0}
        stream.write(json.dumps(line) + "\\n")
status = {"phase": "training", "step": 1800, "total_steps": 3000, "tokens_per_s": rate, "updated_at": now}
status["phase_started_at"] = now - 1800
with open(folder + "/status.json.new", "w") as stream:
    json.dump(status, stream)
os.replace(folder + "/status.json.new", folder + "/status.json")
print("step 1800/3000 loss 2.0", flush=True)
time.sleep(lives_s)
if fails:
    raise RuntimeError(fails)
'''
RACE = "Detected that you are using FX to symbolically trace a dynamo-optimized function."


class Patient:
    def __init__(self, place: Place) -> None:
        self.place = place
        (place.payload / "train.py").write_text(TRAIN)

    def command(self, *words: str) -> list[str]:
        return ["python3", "train.py", *words]

    def deploy(self, source: str) -> None:
        (self.place.payload / "train.py").write_text(source)
        self.place.write(command=self.command("21000"))
        self.place.ok("deploy")

    def runs(self, *fails: str, lives_s: float = 0.0) -> None:
        variables = {"LIVES_S": str(lives_s), "FAILS": " ".join(fails)}
        self.place.write(command=self.command("21000"), variables=variables)
        self.place.orch("launch", *(() if lives_s else ("--wait", "end")))

    def doctor(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self.place.orch("doctor", *words, "--json")
        assert done.returncode in (0, 1), said(done)
        record: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, record


@pytest.fixture(scope="module")
def patient(embedded_lab: EmbeddedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    place = Place(embedded_lab, tmp_path_factory.mktemp("doctor"), f"i{next(numbers)}")
    yield Patient(place)
    place.orch("stop", "--kill", "--timeout", "5")


def ids(record: dict[str, Any]) -> list[str]:
    return [one["id"] for one in record["findings"] if one["severity"] != "info"]


@pytest.mark.lab
def test_a_new_target_is_told_row_by_row_what_it_lacks(patient: Patient) -> None:
    place = patient.place
    place.write(command=patient.command("21000"), data=f"{place.base}/data", devices=8)
    done = place.orch("doctor", "--setup", "--json")
    record = json.loads(done.stdout)
    by_name = {row["name"]: row for row in record["rows"]}
    assert done.returncode == 1 and not record["fit"]
    assert [name for name, row in by_name.items() if row["ok"] is False] == ["path"]
    assert by_name["path"]["way_out"] and by_name["release"]["way_out"] == "orch deploy"
    assert {"ssh", "container", "python3", "disk", "GPUs", "time", "command"} <= {*by_name}
    place.write(command=["no-such-program", "x"], devices=99)
    text = place.orch("doctor", "--setup").stdout.decode()
    assert "no-such-program is not there" in text and "8 there, 99 wanted" in text
    assert by_name["torch"]["ok"] is None and "once it is deployed" in by_name["torch"]["text"]


@pytest.mark.lab
def test_an_environment_without_the_torch_that_the_payload_imports_is_not_fit(
    embedded_lab: EmbeddedLab, tmp_path: Path
) -> None:
    place = Place(embedded_lab, tmp_path, f"i{next(numbers)}")
    venv = MadeVenv(Path(place.base).parent / "venv")
    maybe = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    (place.payload / "train.py").write_text(maybe + "import model\n")
    (place.payload / "export.py").write_text("import torch\n")
    place.write(command=["python", "train.py"], python=str(venv.python))
    place.ok("deploy")
    assert "torch" not in place.ok("doctor", "--setup"), "it does without"
    (place.payload / "model.py").write_text("import os, torch.nn as nn\n")
    place.ok("deploy")
    done = place.orch("doctor", "--setup")
    text = done.stdout.decode()
    assert done.returncode == 1 and "model.py imports it, and the environment has none\n" in text, said(done)
    venv.install("torch", "2.11.0", {"torch/__init__.py": "raise SystemExit('torch was imported')\n"})
    assert "model.py imports it, and the environment has it" in place.ok("doctor", "--setup")


@pytest.mark.lab
def test_a_target_without_runs_says_what_it_says(patient: Patient) -> None:
    patient.place.write(command=patient.command("21000"))
    code, record = patient.doctor()
    assert code == 0 and record["run_id"] is None and ids(record) == []
    assert any(text.startswith("GPUs (8)") for text in record["healthy"])
    assert {"what": "run", "why": "there is no run yet"} in record["not_looked"]


@pytest.mark.lab
def test_a_target_that_cannot_be_reached_is_a_finding(patient: Patient) -> None:
    place = patient.place
    place.write(command=["true"], host={"port": 1})
    code, record = patient.doctor()
    assert (code, ids(record)) == (1, ["ssh"]) and record["findings"][0]["next_step"]
    assert "ssh" in place.orch("doctor", "--setup").stdout.decode()
    place.write(command=["true"], target={"id": 4711})
    code, record = patient.doctor()
    assert (code, ids(record)) == (1, ["pct"])
    done = place.orch("doctor", "--setup", "--json")
    assert [(row["name"], row["ok"]) for row in json.loads(done.stdout)["rows"][:2]] == [
        ("ssh", True),
        ("container", False),
    ]


@pytest.fixture(scope="module")
def good(patient: Patient) -> str:
    """A run at 21 Ktok/s, marked good."""
    patient.deploy(TRAIN)
    patient.runs()
    patient.place.ok("runs", "mark", "last", "good")
    return str(json.loads(patient.place.ok("runs", "--json"))["runs"][0]["run_id"])


@pytest.mark.lab
def test_a_healthy_a_slow_and_a_dead_run_are_told_apart(patient: Patient, good: str) -> None:
    patient.deploy(TRAIN)
    patient.runs()
    code, record = patient.doctor()
    assert (code, ids(record)) == (0, []) and record["good"]["run_id"] == good

    patient.deploy(TRAIN.replace("float(sys.argv[1])", "0.6 * float(sys.argv[1])"))
    patient.runs()
    code, record = patient.doctor()
    assert (code, ids(record)) == (1, ["code-edited", "slow"])
    assert any("60 %" in line for line in record["findings"][0]["evidence"])
    slow_run = record["run_id"]

    patient.deploy(TRAIN)
    patient.runs(RACE)
    code, record = patient.doctor()
    assert code == 1 and ids(record)[0] == "fx-race" and ids(record)[-1] == "run-dead"
    code, record = patient.doctor(slow_run)
    assert record["run_id"] == slow_run and ids(record) == ["code-edited", "slow"]
    listed = {run["run_id"]: run for run in json.loads(patient.place.ok("runs", "--json"))["runs"]}
    assert {one["id"] for one in listed[slow_run]["findings"]} == {"code-edited", "slow"}


@pytest.mark.lab
def test_findings_rise_in_status_while_a_run_goes_on(patient: Patient, good: str) -> None:
    place = patient.place
    patient.deploy(TRAIN)
    patient.runs(lives_s=60)
    record = eventually(lambda: _judged(place), "a status that was judged")
    assert ids(record) == []
    place.ok("stop", "--kill", "--timeout", "5")
    patient.deploy(TRAIN.replace("float(sys.argv[1])", "0.2 * float(sys.argv[1])"))
    patient.runs(lives_s=60)
    record = eventually(lambda: (found := _judged(place)) and ids(found) and found, "a status with findings")
    assert ids(record)[0] == "code-edited" and ids(record)[-1] == "slow"  # the variables of this test differ, too
    assert "critical slow: 4.2 Ktok/s" in place.ok("status")
    watching = Watching(place)
    told = watching.until(lambda one: one["findings"], "findings in a watch")
    assert ids(told)[0] == "code-edited", "what a record says is shown at once, a rate after a while"
    watching.end()
    place.ok("stop", "--kill", "--timeout", "5")


def _judged(place: Place) -> dict[str, Any] | None:
    record = place.status()
    return record if record["findings"] is not None else None


@pytest.fixture
def gpu_place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"i{next(numbers)}")
    place.write(command=["true"], devices=8)
    yield place
    place.clean()
    real_lab.set_gpus({})


@pytest.mark.real_lab
def test_what_holds_gpus_is_told_apart_by_whose_it_is(gpu_place: Place, neighbour: RealLab) -> None:
    stray = gpu_place.hold_gpus({5: 60_000})
    gpu_place.hold_gpus({2: 40_000}, container=NEIGHBOUR)
    done = gpu_place.orch("doctor", "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 1 and ids(record) == ["stray-process"]
    found = {one["id"]: one for one in record["findings"]}
    assert any("nvidia5" in line for line in found["stray-process"]["evidence"])
    assert "GPU 2" in found["gpu-neighbour"]["what"] and found["gpu-neighbour"]["severity"] == "info"
    assert stray.alive(), "it only looks"


@pytest.mark.real_lab
def test_a_lost_gpu_is_named(gpu_place: Place, real_lab: RealLab) -> None:
    real_lab.set_gpus({"lost": [3]})
    done = gpu_place.orch("doctor", "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 1 and ids(record)[0] == "gpu-lost", record["findings"]
    what = record["findings"][0]["what"]
    assert "GPU 3" in what or "5D:00.0" in what, "NVML numbers it, nvidia-smi names its place"
