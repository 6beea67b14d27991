"""nvidia-smi's rows, and everything it says instead of one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.gpu_csv import parse_gpu_csv
from orchestrator.reports.status_facts import gpu_answer


def test_rows():
    answer = parse_gpu_csv("0, NVIDIA H200, 143771, 32362, 98\n1, NVIDIA H200, 143771, 0, 0\n")
    assert answer.gpus == (GpuFact(0, "NVIDIA H200", 143771, 32362, 98), GpuFact(1, "NVIDIA H200", 143771, 0, 0))
    assert answer.rejected == ()


@pytest.mark.parametrize(
    "absent",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "[Insufficient Permissions]",
        "ERR!",
        "[Function Not Found]",
        "[Requested functionality has been deprecated]",
        "[GPU is lost]",
        "(null)",
        "",
    ],
)
def test_absent_is_unknown_and_never_0(absent):
    answer = parse_gpu_csv(f"0, {absent}, {absent}, {absent}, {absent}")
    assert [replace(gpu, error=None) for gpu in answer.gpus] == [GpuFact(0, None, None, None, None)]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("0, NVIDIA H200, 143771, [GPU is lost], [GPU is lost]", "[GPU is lost]"),
        ("0, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]", "[Unknown Error]"),
        ("0, NVIDIA H200, 143771, 1, [Unknown Error]", None),
        ("0, NVIDIA H200, 143771, 1, ERR!", "ERR!"),
        ("0, NVIDIA H200, 143771, 1, [N/A]", None),
    ],
)
def test_a_gpu_that_the_driver_cannot_use_is_told_from_one_without_the_feature(row, error):
    assert [gpu.error for gpu in parse_gpu_csv(row).gpus] == [error]


def test_an_absent_first_value_does_not_drop_the_row():
    assert parse_gpu_csv("[N/A], NVIDIA H100L-2-24C, 24576, [N/A], [N/A]").gpus == (
        GpuFact(None, "NVIDIA H100L-2-24C", 24576, None, None),
    )


@pytest.mark.parametrize(
    "line",
    [
        'Field "cuda_version" is not a valid field to query.',
        "No devices were found",
        "0, Tesla T4, 15360, 0, 0, extra",
        "0, Tesla T4, 15360, 0",
        "Unable to determine the device handle for GPU 0000:09:00.0: Unknown Error",
        "0, Tesla T4, -1, 0, 0",
    ],
)
def test_what_is_no_row_is_rejected_and_kept(line):
    answer = parse_gpu_csv(f"\n1, Tesla T4, 15360, 3, 7\n{line}\n\n")
    assert answer.gpus == (GpuFact(1, "Tesla T4", 15360, 3, 7),)
    assert answer.rejected == (line,)


@given(st.text(max_size=200))
def test_any_text_is_survived(text):
    parse_gpu_csv(text)


LOST = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the system to recover this GPU"


@pytest.mark.parametrize(
    ("smi", "count", "words"),
    [
        (
            {"rows": [], "error": "No devices were found"},
            None,
            "No devices were found: check what the container was given",
        ),
        (
            {"exit_code": 0, "stdout": f"0, A, 9, 1, 2\n{LOST}\n"},
            1,
            "GPU is lost. Reboot the system to recover this GPU: drain",
        ),
        ({"exit_code": 9, "timed_out": False, "stdout": "Unknown words\n", "stderr": ""}, None, "Unknown words"),
    ],
)
def test_status_says_what_helps_beside_what_nvidia_smi_says(smi, count, words):
    word = gpu_answer({"smi": smi})
    assert (None if word.gpus is None else len(word.gpus)) == count
    assert word.error is not None and words in word.error
