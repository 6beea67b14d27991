"""What a person sees in a real tmux while GPUs, nvidia-smi, containers and runs fail under a watch."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.lab import doubles
from orchestrator.lab.real import RealLab
from orchestrator.reports.trend import BARS
from tests.lab.place import Place
from tests.lab.terminal import Shell, whole_frame
from tests.waiting import eventually

numbers = itertools.count(1)

TRAINING = '''\
"""A training that says which GPU does what, and who waits."""
import json
import os
import sys
import time

folder, steps = os.environ["ORCH_RUN_DIR"], int(sys.argv[1])


def write(name, record):
    with open(f"{folder}/{name}.draft", "w") as stream:
        json.dump(record, stream)
    os.replace(f"{folder}/{name}.draft", f"{folder}/{name}")


write("runtime.json", {"devices": [{"roles": ["target" if index < 5 else "drafter"]} for index in range(8)]})
for step in range(1, steps + 1):
    waits = {"target": 0.03, "drafter": 0.41}
    write("status.json", {"phase": "training", "step": step, "total_steps": 9000, "loss": 9 / step,
                          "tokens_per_s": 20000 + step, "updated_at": time.time(), "wait_shares": waits})
    print(f"step {step} loss {9 / step:.4f} 20.1 Ktok/s", flush=True)
    time.sleep(0.1)
    if os.path.exists(f"{folder}/crash"):
        break
raise ValueError("the loss is nan: ü€")
'''  # fmt: skip


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"y{next(numbers)}")
    (place.payload / "train.py").write_text(TRAINING)
    yield place
    real_lab.set_gpus({})
    place.clean()


def shows(shell: Shell, *facts: str, timeout_s: float = 30.0) -> str:
    try:
        found = eventually(lambda: whole_frame(shell, facts), f"{facts}", timeout_s)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *shell.screen()])) from None
    assert found is not None
    return found


@pytest.mark.real_lab
@pytest.mark.skipif(doubles.c_compiler() is None, reason="no C compiler")
def test_a_gpu_is_lost_and_a_run_crashes(place: Place, real_lab: RealLab) -> None:
    real_lab.show_nvml()
    place.hold_gpus({6: 70000})
    place.write(command=["python3", "train.py", "9000"])
    place.ok("deploy")
    place.ok("launch")
    shell = Shell(place, 110, 40)
    try:
        shell.type("orch status --watch")
        well = shows(shell, "target 3%, drafter 41% of their time", "trend", "6  drafter  70000 of 143771 MiB", "650 W")
        assert re.search(f"^trend +loss [{BARS}]{{2,}}  speed [{BARS}]{{2,}}  since step", well, re.MULTILINE)
        real_lab.set_gpus({"lost": [3]})
        lost = shows(shell, "GPU is lost (NVML code 15)")
        assert re.search(r"^ +3  target +GPU is lost \(NVML code 15\)", lost, re.MULTILINE)
        assert "6  drafter  70000 of 143771 MiB" in lost and len(re.findall(r"of 143771 MiB", lost)) == 7
        real_lab.set_gpus({})
        place.inside("touch", f"{place.base}/runs/{place.status()['run']['run_id']}/crash")
        failed = shows(shell, "failed: exit code 1", "ValueError: the loss is nan: ü€")
        assert "waiting" not in failed and "drafter" not in failed, "nobody waits any more, no GPU has a role"
    finally:
        shell.close()
        real_lab.hide_nvml()


@pytest.mark.real_lab
def test_nvidia_smi_hangs_and_the_container_is_stopped(place: Place, real_lab: RealLab) -> None:
    place.write(host={"keepalive": {"interval_s": 1, "count": 2}}, command=["python3", "train.py", "9000"])
    place.ok("deploy")
    place.ok("launch")
    shell = Shell(place, 100, 40)
    try:
        shell.type("orch status --watch")
        shows(shell, "running for", "0 of 143771 MiB")
        real_lab.set_gpus({"mode": "hang"})
        real_lab.stop_container()
        down = shows(shell, "link       down for", "not running")
        assert "running for" in down and "0 of 143771 MiB" in down, "what was last known, with its age"
        assert re.search(r"what follows is \d+ s old", down.replace("\n", " "))
        real_lab.start_container()
        back = shows(shell, "ended, outcome unknown: nobody recorded how it ended")
        assert "link       down" not in back
        hung = shows(shell, "nvidia-smi has not answered for 1", timeout_s=40)
        assert "ended, outcome unknown" in hung, "a hung nvidia-smi holds nothing else up"
    finally:
        shell.close()


@pytest.mark.real_lab
def test_several_targets_have_a_row_each_and_one_that_is_gone_hides_no_other(place: Place) -> None:
    place.write(command=["python3", "train.py", "9000"])
    place.ok("deploy")
    place.ok("launch")
    inventory = yaml.safe_load(place.inventory.read_text())
    gone: dict[str, object] = {
        "address": "127.0.0.1",
        "port": 1,
        "containers": {"ct9": {"id": 209, "root": "/root", "payload": "foreign"}},
    }
    inventory["hosts"]["gone-box"] = gone
    place.inventory.write_text(yaml.safe_dump(inventory))
    shell = Shell(place, 150, 20)
    try:
        shell.type("orch status --watch all; echo exit code $?")
        table = shows(shell, "running for", "8 at 0 %, 0 GiB", "not reached", "refused")
        rows = table.splitlines()
        assert rows[0].split()[:3] == ["target", "run", "step"]
        gone_row, well_row = rows[1:3]  # in the inventory's order
        assert re.match(r"ct200 +running for \d+ s +\d+/9000 +\d.* Ktok/s .* 8 at 0 %, 0 GiB", well_row)
        assert re.match(r"ct9 +not reached .*refused", gone_row)
        step = int(re.findall(r"(\d+)/9000", well_row)[0])
        eventually(lambda: int(re.findall(r"(\d+)/9000", "\n".join(shell.screen()))[0]) > step + 5, "it goes on")
        shell.press("C-c")
        eventually(lambda: "exit code 130" in shell.history(), "it does not end")
        assert "ct9" in shell.history().partition("orch status --watch")[2], "the last table stays"
    finally:
        shell.close()
    head = 'set -o pipefail; timeout -s INT 20 "$@" | head -n 3'
    argv = ["bash", "-c", head, "bash", *place.argv("status", "--watch", "--json", "all")]
    done = place.lab.run(argv, cwd=place.folder, env=place.environment())
    assert [json.loads(line)["target"] for line in done.stdout.splitlines()] == ["ct200"] * 3
    assert b"ct9:" in done.stderr and b"refused" in done.stderr and done.stderr.count(b"ct9:") == 1
