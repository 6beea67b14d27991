"""The stand-in for nvidia-smi says what the real one says, and refuses what it does not know."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab import doubles

CSV = "--format=csv,noheader,nounits"


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    doubles.install(tmp_path, backend="embedded", seen_at=str(tmp_path), python=Path(sys.executable).resolve())
    return tmp_path / "nvidia-smi"


def ask(smi: Path, *argv: str, state: dict[str, Any] | None = None) -> tuple[int, str]:
    if state is not None:
        (smi.parent / "gpu.json").write_text(json.dumps(state))
    done = subprocess.run([str(smi), *argv], capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_eight_idle_devices_by_default(smi: Path) -> None:
    code, text = ask(smi, "--query-gpu=index,memory.total,utilization.gpu", "--format=csv")
    assert code == 0
    assert text.splitlines()[:2] == [
        "index, memory.total [MiB], utilization.gpu [%]",
        "0, 143771 MiB, 0 %",
    ]
    assert len(text.splitlines()) == 9


def test_processes_use_memory(smi: Path) -> None:
    state = {"processes": [{"gpu": 1, "pid": 4711, "name": "python", "used_memory_mib": 900}]}
    assert ask(smi, "--query-gpu=memory.used", CSV, "-i", "1", state=state) == (0, "900\n")
    apps = ask(smi, "--query-compute-apps=pid,used_memory", "--format=csv")
    assert apps == (0, "pid, used_gpu_memory [MiB]\n4711, 900 MiB\n")
    assert ask(smi, "--query-compute-apps=pid", CSV, "-i", "0") == (0, "")


def test_an_unknown_field_fails_the_whole_query(smi: Path) -> None:
    asked = ask(smi, "--query-gpu=index,colour", CSV)
    assert asked == (2, 'Field "colour" is not a valid field to query.\n\n')


@pytest.mark.parametrize(
    "argv", [[], ["--query-gpu=index"], ["--frobnicate"], ["--query-gpu=index", "--format=xml"], ["-L", "-L"]]
)
def test_what_it_does_not_know_is_an_error(smi: Path, argv: list[str]) -> None:
    code, text = ask(smi, *argv)
    assert code == 1
    assert text.startswith("Invalid combination of input arguments.")


def test_one_lost_device_hides_the_others_unless_they_are_asked_alone(smi: Path) -> None:
    lost = {"lost": [3]}
    code, text = ask(smi, "--query-gpu=index", CSV, state=lost)
    assert (code, text.startswith("Unable to determine the device handle for GPU0000:5D:00.0: GPU is lost.")) == (
        15,
        True,
    )
    assert ask(smi, "--query-gpu=index", CSV, "-i", "2") == (0, "2\n")


def test_odd_answers(smi: Path) -> None:
    absent = {"not_available": ["memory.used"]}
    assert ask(smi, "--query-gpu=index,memory.used", CSV, "-i", "0", state=absent) == (0, "0, [N/A]\n")
    assert ask(smi, "-L", state={"mode": "none"}) == (6, "No devices were found\n")
    code, text = ask(smi, "-L", state={"mode": "mismatch"})
    assert (code, text.splitlines()[0]) == (18, "Failed to initialize NVML: Driver/library version mismatch")


def test_it_can_hang(smi: Path) -> None:
    (smi.parent / "gpu.json").write_text('{"mode": "hang"}')
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([str(smi), "-L"], capture_output=True, timeout=1)
