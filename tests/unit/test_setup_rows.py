"""`orch doctor --setup`: each thing that a launch needs, well, wrong with its way out, or not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.diagnosis.setup import SetupFacts, not_reached, rows
from orchestrator.probes.gpu import GpuFact
from orchestrator.reports.setup import SetupReport, render_setup
from tests.unit.facts import TARGET, payload

GPUS = tuple(GpuFact(index, "NVIDIA H200", 143771, 3) for index in range(8))
WELL = SetupFacts(
    agent_python="3.11.2",
    is_root=True,
    host_ok=True,
    python_path="/root/venv/bin/python",
    python_version="3.12.3",
    tmux_version="3.3a",
    disk_free_bytes=900_000_000_000,
    inodes_free=10**8,
    root_writable=True,
    shm_bytes=1 << 36,
    gpus=GPUS,
    paths=(("/data", True),),
    clock_offset_s=0.2,
    release="/root/orch/releases/" + "a" * 64,
    torch_wanted_by="train.py",
    has_torch=True,
)


def wrong(facts: SetupFacts, target: Any = TARGET) -> list[str]:
    found = rows(target, facts)
    assert all(row.way_out for row in found if row.ok is False), "each has its way out"
    return [row.name for row in found if row.ok is False]


def test_a_target_that_has_all_is_fit() -> None:
    assert wrong(WELL) == []
    report = SetupReport("ct200", "ct200", rows(TARGET, WELL))
    assert report.is_fit and render_setup(report).startswith("ct200: fit\n")
    assert "8 x NVIDIA H200, 8 wanted" in render_setup(report)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"agent_python": "3.6.8"}, "python3"),
        ({"root_writable": False}, "root"),
        ({"disk_free_bytes": 10_000_000}, "disk"),
        ({"inodes_free": 5}, "disk"),
        ({"shm_bytes": 64 * 2**20}, "/dev/shm"),
        ({"gpus": GPUS[:7]}, "GPUs"),
        ({"gpus": None, "gpu_error": "nvidia-smi is not installed"}, "GPUs"),
        ({"gpus": (*GPUS[:7], replace(GPUS[7], error="GPU is lost"))}, "GPUs"),
        ({"gpu_warnings": ("there is no /dev/nvidia-uvm: CUDA cannot start here",)}, "GPUs"),
        ({"python_error": "there is no /root/venv/bin/python", "python_version": None}, "environment"),
        ({"tmux_error": "tmux is not installed"}, "tmux"),
        ({"paths": (("/data", False),)}, "path"),
        ({"clock_offset_s": -900.0}, "time"),
        ({"has_torch": False}, "torch"),
    ],
)
def test_what_is_lacking_is_the_one_row_that_is_wrong(changes: dict[str, Any], name: str) -> None:
    assert wrong(replace(WELL, **changes)) == [name]


def test_what_is_not_known_or_not_wanted_is_not_wrong() -> None:
    assert wrong(SetupFacts(gpus=GPUS)) == []
    plain = replace(TARGET, payload=payload(devices=0, session=None))
    assert wrong(replace(WELL, gpus=None, tmux_error="tmux is not installed"), plain) == []
    assert wrong(replace(WELL, host_ok=False, why_no_host="sudo refused")) == []


def test_a_command_of_its_own_and_an_environment_that_is_not_made_yet_are_told() -> None:
    own = replace(TARGET, payload=payload(command=("torchrun", "train.py")))
    assert wrong(replace(WELL, command_found=False), own) == ["command"]
    assert wrong(replace(WELL, command_found=True), own) == []
    for one in (own, TARGET):
        assert wrong(replace(WELL, command_found=True, command_lacks="trian.py"), one) == ["command"]
    made = replace(TARGET, payload=payload(python=None, environment="train"))
    assert wrong(WELL, made) == ["environment"]
    assert wrong(replace(WELL, environment="0123456789ab"), made) == []
    assert wrong(WELL, replace(TARGET, payload=None)) == ["payload"]


def torch_row(target: Any = TARGET, **changes: Any) -> tuple[bool | None, str, str] | None:
    found = [row for row in rows(target, replace(WELL, **changes)) if row.name == "torch"]
    return (found[0].ok, found[0].text, found[0].way_out) if found else None


def test_torch_is_missed_only_where_the_payload_and_the_environment_are_there() -> None:
    missed = torch_row(has_torch=False)
    assert missed is not None and missed[1] == "train.py imports it, and the environment has none"
    assert torch_row(torch_wanted_by=None, has_torch=None) is None, "a payload that does without"
    assert torch_row(has_torch=None) == (
        None,
        "train.py imports it, and whether the environment has it cannot be told",
        "",
    )
    before = torch_row(release=None, torch_wanted_by=None, has_torch=None)
    assert before is not None and before[0] is None and "once it is deployed" in before[1]
    made = replace(TARGET, payload=payload(python=None, environment="train"))
    assert torch_row(made, has_torch=None) == (None, "train.py imports it, and the environment is not there yet", "")
    missed = torch_row(made, environment="0123456789ab", has_torch=False)
    assert missed is not None and missed[2] == "add it to the lock of `environments: train:`, then: orch env sync"


@pytest.mark.parametrize(("part", "names"), [("ssh", ["ssh", "all else"]), ("pct", ["ssh", "container", "all else"])])
def test_where_it_ended_is_told_and_the_rest_was_not_reached(part: str, names: list[str]) -> None:
    found = not_reached(part, "no route to host", "look at the network", TARGET)
    assert [row.name for row in found] == names
    assert [row.ok for row in found][-2:] == [False, None] and found[-2].way_out
