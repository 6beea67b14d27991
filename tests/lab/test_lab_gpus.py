"""The lab's GPUs are used by its real processes, and seen from the host and from each container as real ones are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import NEIGHBOUR_ID, Lab
from tests.lab.place import Place
from tests.waiting import eventually

APPS = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits"]
USED = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, "gpus")
    yield place
    place.clean()


def test_a_process_in_the_container_uses_gpus(place: Place) -> None:
    holder = place.hold_gpus({0: 900, 3: 70000})
    gpus = place.status()["gpus"]
    assert [gpu["memory_used_mib"] for gpu in gpus] == [900, 0, 0, 70000, 0, 0, 0, 0]
    rows = [line.split(", ") for line in place.inside(*APPS).splitlines()]
    assert [row[1:] for row in rows] == [
        [str(holder.host_pid), "[Not Found]", "900"],
        [str(holder.host_pid), "[Not Found]", "70000"],
    ]
    links = place.inside("sh", "-c", f"readlink /proc/{holder.pid}/fd/*").split()
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia3"} <= set(links)
    place.inside("kill", "-9", str(holder.pid))
    eventually(lambda: not holder.alive(), "it ends")
    assert place.inside(*USED).split() == ["0"] * 8


def test_term_ends_a_holder_unless_it_is_deaf(place: Place) -> None:
    hears, deaf = place.hold_gpus({0: 1}), place.hold_gpus({0: 2}, deaf=True)
    place.inside("kill", str(hears.pid), str(deaf.pid))
    eventually(lambda: not hears.alive(), "it ends")
    assert place.inside(*USED, "-i", "0") == "2\n"
    assert deaf.alive()


@pytest.mark.real_lab
def test_the_host_sees_both_containers_and_its_own_process(neighbour: RealLab, tmp_path: Path) -> None:
    place = Place(neighbour, tmp_path, "gpus")
    try:
        mine, beside = place.hold_gpus({0: 900}), place.hold_gpus({0: 5000}, container=NEIGHBOUR_ID)
        on_host = place.hold_gpus({1: 10}, container=None)
        seen = neighbour.host_run(APPS).stdout.decode().splitlines()
        assert {(row.split(", ")[1], row.split(", ")[3]) for row in seen} == {
            (str(mine.host_pid), "900"),
            (str(beside.host_pid), "5000"),
            (str(on_host.host_pid), "10"),
        }
        assert "[Not Found]" not in str(seen)
        for holder, container in ((mine, 200), (beside, 201)):
            facts = neighbour.host_run(["cat", f"/proc/{holder.host_pid}/cgroup", f"/proc/{holder.host_pid}/status"])
            assert f"0::/lxc/{container}/ns/.lxc\n" in facts.stdout.decode()
            assert f"NSpid:\t{holder.host_pid}\t{holder.pid}\n" in facts.stdout.decode()
        # The container's own /proc shows its own processes; the driver counts everybody's memory.
        assert place.inside(*USED).split()[:2] == ["5900", "10"]
        held = place.inside("sh", "-c", "ls -l /proc/[0-9]*/fd | grep -c '/dev/nvidia[0-9]'")
        assert held == "1\n"
    finally:
        place.clean()
