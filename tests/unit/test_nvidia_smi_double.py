"""The stand-in for nvidia-smi says what the real one says, and refuses what it does not know."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab import doubles
from tests.waiting import eventually

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


@pytest.fixture
def holder(smi: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Holds 900 MiB of GPU 1, 7 of GPU 2 and only looks at GPU 3."""
    words = [sys.executable, "-IS", str(smi.parent / "hold_gpu.py"), "--until-eof", "1=900", "2=7", "3=0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid} {process.pid}\n".encode()
        yield process
        process.stdin.close()  # type: ignore[union-attr]


def test_who_holds_a_device_file_open_uses_that_gpu(smi: Path, holder: subprocess.Popen[bytes]) -> None:
    state = {"devices": [{}, {"memory_used_mib": 50}, {}, {}]}
    fields = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"
    python = Path(sys.executable).resolve()
    _, text = ask(smi, fields, CSV, state=state)
    assert text.splitlines() == [
        f"GPU-5a4e8f01-1b2c-4d3e-8f90-0123456789ab, {holder.pid}, {python}, 900",
        f"GPU-5a4e8f02-1b2c-4d3e-8f90-0123456789ab, {holder.pid}, {python}, 7",
    ]
    assert ask(smi, "--query-gpu=memory.used", CSV) == (0, "0\n950\n7\n0\n")
    hidden = {**state, "processes_hidden": True}
    assert ask(smi, fields, CSV, state=hidden) == (0, "")
    assert ask(smi, "--query-gpu=memory.used", CSV, "-i", "1") == (0, "950\n")
    holder.kill()
    holder.wait()
    assert ask(smi, "--query-gpu=memory.used", CSV, "-i", "1") == (0, "50\n")


def test_it_goes_on_answering_when_told_to(smi: Path) -> None:
    query = [str(smi), "--query-gpu=index,memory.used", "--format=csv", "-i", "1", "-lms", "20"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout is not None
        lines = iter(asked.stdout)
        assert [next(lines), next(lines), next(lines)] == ["index, memory.used [MiB]\n", "1, 0 MiB\n", "1, 0 MiB\n"]
        (smi.parent / "gpu.draft").write_text('{"devices": [{}, {"memory_used_mib": 5}]}')
        (smi.parent / "gpu.draft").replace(smi.parent / "gpu.json")
        eventually(lambda: next(lines) == "1, 5 MiB\n", "the next round reads the state anew")
        asked.stdout.close()
        assert asked.wait(20) == -signal.SIGPIPE


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--query-gpu=index"],
        ["--frobnicate"],
        ["--query-gpu=index", "--format=xml"],
        ["-L", "-L"],
        ["-L", "-l", "soon"],
        ["-L", "-l", "0"],
        ["-L", "-l"],
        ["-L", "-l", "1", "--loop=1"],
    ],
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
