"""Environments in a container without a network: built, switched, rolled back; a build that is cut harms nothing."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.agent.far.env_build import MARK
from orchestrator.lab.real import RealLab
from tests.lab.past_orch import agents, far, kill
from tests.lab.place import Place, said
from tests.tiny_wheels import lock_line, make_wheel
from tests.uv_wheel import uv_wheel
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
numbers = itertools.count(1)

TRAINING = "import alpha, sys\nprint('alpha', alpha.VERSION, 'in', sys.prefix, flush=True)\n"
HOLD = """\
import os, time
if os.path.exists({hold!r}):
    open({held!r}, "w").close()
    until = time.monotonic() + 120
    while time.monotonic() < until and not os.path.exists({hold!r} + ".never"):
        time.sleep(0.02)
"""


class Environments:
    """A place with a folder of wheels and one lock."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wheels = place.folder / "wheels"
        self.wheels.mkdir()
        wheel = uv_wheel()
        (self.wheels / wheel.name).symlink_to(wheel)
        (place.payload / "train.py").write_text(TRAINING)
        self.lock = place.folder / "train.txt"
        self.store = f"{place.base}/envs"

    def say(self, *wheels: Path) -> None:
        self.lock.write_text("".join(map(lock_line, wheels)))

    def wheel(self, name: str, version: str, files: dict[str, str] | None = None) -> Path:
        return make_wheel(self.wheels, name, version, files)

    def sync(self, *words: str) -> str:
        return self.place.ok("env", "sync", "--wheels", str(self.wheels), *words)

    def current(self) -> str:
        return str(json.loads(far(self.place, "cat", f"{self.store}/current.json"))["train"]["id"])

    def trains_with(self) -> str:
        self.place.ok("launch", "--wait", "end")
        return self.trained_with()

    def trained_with(self) -> str:
        """What the last run printed: the version that it imported, and the environment's name."""
        log = far(self.place, "sh", "-c", f"cat $(ls -d {self.place.base}/runs/*/ | tail -n 1)run.log")
        found = re.search(rf"alpha (\S+) in {self.store}/([0-9a-f-]+)", log)
        assert found
        return f"{found[1]} {found[2]}"


@pytest.fixture
def made(real_lab: RealLab, tmp_path: Path) -> Iterator[Environments]:
    place = Place(real_lab, tmp_path, f"e{next(numbers)}")
    place.write(
        host={"keepalive": {"interval_s": 1, "count": 2}},
        command=["python", "train.py"],
        environments={"train": {"lock": str(place.folder / "train.txt")}},
    )
    made = Environments(place)
    made.say(made.wheel("alpha", "1.0"), made.wheel("beta", "0.1"))
    place.ok("deploy")
    yield made
    place.clean()


def test_sync_switch_and_roll_back(made: Environments) -> None:
    place = made.place
    refused = place.orch("launch")
    assert refused.returncode == 10 and "orch env sync" in said(refused), said(refused)
    assert "2 packages, sent 4 files" in made.sync()
    old = made.current()
    assert "passes" in place.ok("env", "check")
    compiled = far(place, "sh", "-c", f"find {made.store}/{old} -name '*.pyc' | grep -c packages/").strip()
    assert compiled == "2", "bytecode is compiled at build"

    # beta and uv are there already, and travel no second time.
    made.say(made.wheel("alpha", "2.0"), made.wheels / "beta-0.1-py3-none-any.whl")
    refused = place.orch("launch")
    assert refused.returncode == 10 and f"current is {old[:12]}" in said(refused), said(refused)
    assert "sent 2 files" in made.sync()
    new = made.current()
    assert made.trains_with() == f"2.0 {new}"
    assert place.status()["run"]["environment"]["id"] == new

    assert f"(was {new[:12]})" in place.ok("env", "rollback")
    assert f"was chosen instead of {new[:12]}" in place.ok("launch", "--wait", "end")
    assert made.trained_with() == f"1.0 {old}"
    assert f"(was {old[:12]})" in made.sync() and made.current() == new

    # Somebody changed it by hand: it is built once more beside itself, and what was changed is left as it is.
    edited = f"$(echo {made.store}/{new}/lib/python*/site-packages)/alpha/__init__.py"
    far(place, "sh", "-c", f"echo \"VERSION = 'changed'\" > {edited}")
    checked = place.orch("env", "check")
    assert checked.returncode == 14 and "alpha" in said(checked) and "orch env sync --rebuild" in said(checked)
    assert f"environment {new[:12]}-2 is current (was {new[:12]})" in made.sync("--rebuild")
    assert "passes" in place.ok("env", "check")
    assert made.trains_with() == f"2.0 {new}-2"


def test_purposes_stand_side_by_side(made: Environments) -> None:
    place = made.place
    datagen = place.folder / "datagen.txt"
    datagen.write_text(lock_line(made.wheel("gamma", "5.0")))
    locks = {"train": {"lock": str(made.lock)}, "datagen": {"lock": str(datagen)}}
    place.write(command=["python", "train.py"], environments=locks, environment="train")
    text = made.sync()
    assert "train: environment" in text and "datagen: environment" in text
    current = json.loads(far(place, "cat", f"{made.store}/current.json"))
    assert made.trains_with() == f"1.0 {current['train']['id']}"
    python = f"{made.store}/{current['datagen']['id']}/bin/python"
    assert far(place, python, "-c", "import gamma; print(gamma.VERSION)") == "5.0\n"
    assert far(place, python, "-c", "import alpha; print(alpha.VERSION)") == "", "that is the other's"

    # The same lock for both is the same environment, built once.
    made.say(made.wheel("alpha", "3.0"))
    datagen.write_text(made.lock.read_text())
    made.sync()
    current = json.loads(far(place, "cat", f"{made.store}/current.json"))
    assert current["train"]["id"] == current["datagen"]["id"]
    assert "datagen, train" in place.ok("env", "list")
    datagen.unlink()
    assert "datagen, train" in place.ok("env", "list"), "what is there does not depend on a lock here"


def test_what_is_in_use_stays_and_the_rest_goes(made: Environments) -> None:
    place = made.place
    made.sync()
    old = made.current()
    (place.payload / "train.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    place.ok("deploy")
    place.ok("launch")
    for version in ("2.0", "3.0"):
        made.say(made.wheel("alpha", version))
        made.sync()
    new = made.current()
    for name, user in ((old, "a live run"), (new, "purpose train")):
        refused = place.orch("env", "remove", name[:8])
        assert refused.returncode == 9 and user in said(refused), said(refused)
    assert "no environment is unused" in place.ok("env", "remove", "--unused")
    place.ok("stop", "--kill", "--timeout", "1")
    assert place.ok("env", "remove", "--unused") == f"ct200: removed {old[:12]}\n"
    assert old not in far(place, "ls", made.store)
    beta = far(place, "sh", "-c", f"find {place.base}/wheels -name 'beta*'")
    assert beta == "", "its wheels went with it"


def test_a_wheel_that_is_not_what_the_lock_says_is_refused_by_name(made: Environments) -> None:
    made.wheel("beta", "0.1", {"beta.py": "evil = True\n"})
    refused = made.place.orch("env", "sync", "--wheels", str(made.wheels))
    assert refused.returncode == 13, said(refused)
    assert "beta 0.1: beta-0.1-py3-none-any.whl is not what the lock's sha256 says" in said(refused)
    assert far(made.place, "ls", made.store) == ""


def cut_client(place: Place, client: subprocess.Popen[bytes]) -> None:
    client.send_signal(signal.SIGKILL)


def cut_agent(place: Place, client: subprocess.Popen[bytes]) -> None:
    (agent,) = agents(place)
    kill(place, agent)


def cut_link(place: Place, client: subprocess.Popen[bytes]) -> None:
    place.lab.link_down()
    assert client.wait(60) == 8
    place.lab.link_up()


def builders(place: Place) -> list[str]:
    """uv and what it started, the ones of a killed agent too."""
    script = f"grep -lsz '^{MARK}={place.base}/' /proc/[0-9]*/environ; true"
    return far(place, "sh", "-c", script).split()


@pytest.mark.parametrize("cut", [cut_client, cut_agent, cut_link])
def test_a_build_that_is_cut_leaves_the_old_one_working(
    made: Environments, cut: Callable[[Place, subprocess.Popen[bytes]], None]
) -> None:
    place = made.place
    made.sync()
    old, first_lock = made.current(), made.lock.read_text()
    # A package that stops every Python of the new environment while `hold` is there: uv's compiling does not end.
    hold, held = f"{place.base}/hold", f"{place.base}/held"
    stopper = made.wheel("stopper", "1.0", {"stopper.pth": "import stopping\n",
                                            "stopping.py": HOLD.format(hold=hold, held=held)})  # fmt: skip
    made.say(made.wheel("alpha", "2.0"), stopper)
    far(place, "touch", hold)
    with (place.folder / "said").open("wb") as text:
        client = place.popen("env", "sync", "--wheels", str(made.wheels), stdout=text, stderr=text)
    eventually(lambda: far(place, "ls", held), "uv is stopped in the middle")
    assert builders(place)
    cut(place, client)
    client.wait(60)

    new_lock = made.lock.read_text()
    made.lock.write_text(first_lock)
    eventually(lambda: place.orch("env", "sync", "--wheels", str(made.wheels)).returncode == 0, "the lease stays taken")
    assert made.trains_with() == f"1.0 {old}"
    if cut is cut_agent:
        assert "not complete" in place.ok("env", "list")

    made.lock.write_text(new_lock)
    far(place, "rm", hold)
    assert "is current" in made.sync()
    assert builders(place) == []
    new = made.current()
    assert new != old and made.trains_with() == f"2.0 {new}"


def test_what_was_spoiled_over_there_is_made_anew_beside_it(made: Environments) -> None:
    made.sync()
    old = made.current()
    spoil = f'echo x > "$(ls {made.place.base}/wheels/*/wheels/alpha-*)"; echo "{{" > {made.store}/{old}/complete.json'
    far(made.place, "sh", "-c", spoil)
    refused = made.place.orch("env", "sync", "--wheels", str(made.wheels))
    assert refused.returncode == 13 and "no longer what was sent" in said(refused), said(refused)
    assert "sent 1 file," in made.sync()
    assert made.current() == f"{old}-2" and made.trains_with() == f"1.0 {old}-2"
