"""Xid lines of the host's kernel log, beside the GPUs that they are of."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.operations.kernel_log import trouble
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.kernel_log import MAX_LINES, kernel_log_argv, kernel_sentences
from tests.unit.test_watch_frame import FAILED, REPORT

CAPTURED = Path(__file__).parents[1] / "data" / "read" / "nvml"
GPUS = (
    GpuFact(0, "H100", None, None, bus="00000000:19:00.0"),
    GpuFact(3, "H100", None, None, bus="00000000:61:00.0"),
)


def test_each_gpu_has_one_sentence_with_its_index_and_the_way_out() -> None:
    text = (CAPTURED / "08-xid-119-names-nvidia-smi.txt").read_text()
    (said,) = kernel_sentences(text, GPUS)
    assert said.startswith("GPU 3 (0000:61:00): the host's kernel reported Xid 119 (the GPU's own processor (GSP)")
    assert "5 times, last at Mon Mar  6 21:38:16 2023".replace("  ", " ") in said and "drain the host" in said
    assert "977823" not in said, "who is named need not be the cause"
    (said,) = kernel_sentences(text, ())
    assert said.startswith("0000:61:00: the host's kernel")
    assert kernel_sentences("[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n", GPUS) == ()


def program(folder: Path, script: str) -> str:
    path = folder / "dmesg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def ask(dmesg: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(kernel_log_argv(dmesg), capture_output=True, text=True, timeout=20)


def test_only_the_drivers_last_lines_travel(tmp_path: Path) -> None:
    lines = (
        'i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo "[$i.0] NVRM: Xid (PCI:0000:61:00): 31, x"; echo other; done'
    )
    done = ask(program(tmp_path, lines))
    assert done.returncode == 0 and done.stdout.count("\n") == MAX_LINES and "other" not in done.stdout
    assert "200 times, last at 500.0" in kernel_sentences(done.stdout, GPUS)[0]


def test_a_log_without_a_word_of_gpus_is_an_answer_and_one_that_is_refused_is_none(tmp_path: Path) -> None:
    done = ask(program(tmp_path, "echo '[0.0] Linux version 6.8'"))
    assert (done.returncode, done.stdout) == (0, "")
    done = ask(program(tmp_path, "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"))
    assert done.returncode == 1 and done.stdout == ""
    assert ask("no-such-dmesg").returncode == 1


@pytest.mark.parametrize(
    ("report", "asked"),
    [
        (REPORT, False),
        (FAILED, True),
        (replace(REPORT, gpu_error="NVML has not answered for 12 s"), True),
        (replace(REPORT, gpu_warnings=("GPU 3: GPU is lost",)), True),
    ],
)
def test_it_is_asked_only_where_something_is_wrong(report: object, asked: bool) -> None:
    assert (trouble(report) is not None) is asked  # type: ignore[arg-type]
