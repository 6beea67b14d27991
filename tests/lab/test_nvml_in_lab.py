"""The lab's container with NVML's library in it: `orch status` and its watch ask that first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab import doubles
from orchestrator.lab.real import RealLab
from tests.lab.place import Place
from tests.lab.watching import watching

numbers = itertools.count(1)
BY_BOTH = ("index", "name", "memory_total_mib", "memory_used_mib", "utilization_percent")

pytestmark = [pytest.mark.real_lab, pytest.mark.skipif(doubles.c_compiler() is None, reason="no C compiler")]


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"n{next(numbers)}")
    real_lab.show_nvml()
    yield place
    real_lab.hide_nvml()
    real_lab.set_gpus({})
    place.clean()


def test_nvml_and_nvidia_smi_tell_the_same_and_nvml_more(place: Place, real_lab: RealLab) -> None:
    holder = place.hold_gpus({0: 900, 3: 70000})
    by_nvml = place.status()
    real_lab.hide_nvml()
    by_smi = place.status()
    assert (by_nvml["gpu_source"], by_smi["gpu_source"]) == ("nvml", "nvidia-smi")
    for one, other in zip(by_nvml["gpus"], by_smi["gpus"], strict=True):
        assert {name: one[name] for name in BY_BOTH} == {name: other[name] for name in BY_BOTH}
    assert by_nvml["gpus"][3]["processes"] == [{"pid": holder.host_pid, "used_mib": 70000, "name": None}]
    assert by_nvml["gpus"][3]["power_w"] == 650.12 and by_nvml["gpus"][4]["throttle"] == ["gpu_idle"]
    assert by_nvml["gpu_warnings"] == by_smi["gpu_warnings"] == []


def test_a_driver_that_fails_is_said_with_its_cause(place: Place, real_lab: RealLab) -> None:
    real_lab.set_gpus({"mode": "mismatch"})
    record = place.status()
    assert record["gpus"] is None and "Driver/library version mismatch (code 18)" in record["gpu_error"]
    assert "reload the driver or restart the host" in record["gpu_error"]
    real_lab.set_gpus({"mode": "crash"})
    record = place.status()
    assert record["gpu_source"] == "nvidia-smi" and len(record["gpus"]) == 8, "the agent lives, and asks the other"


def test_what_happens_to_the_gpus_is_seen_by_the_same_watch(place: Place, real_lab: RealLab) -> None:
    with watching(place) as watch:
        first = watch.until(lambda r: len(r["gpus"] or []) == 8, "the GPUs")
        assert first["gpu_source"] == "nvml" and first["gpus_age_s"] < 5
        real_lab.set_gpus({"lost": [3], "processes": [{"gpu": 2, "pid": 4242, "used_memory_mib": 70000}]})
        lost = watch.until(lambda r: r["gpu_warnings"], "the loss")
        assert lost["gpu_warnings"] == ["GPU 3: GPU is lost (NVML code 15)"] and lost["gpu_error"] is None
        assert [gpu["index"] for gpu in lost["gpus"] if gpu["error"] is None] == [0, 1, 2, 4, 5, 6, 7]
        assert lost["gpus"][2]["memory_used_mib"] == 70000 and lost["gpus"][2]["processes"][0]["pid"] == 4242
        real_lab.set_gpus({})
        watch.until(lambda r: r["gpu_warnings"] == [] and r["gpus"][3]["error"] is None, "it is back")
        assert watch.end() == 130 and watch.said() == ""
