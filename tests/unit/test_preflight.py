"""What preflight finds, with doubles only for what a machine without a GPU does not have."""

import os
import sys

import pytest

from orchestrator.agent.far import preflight
from orchestrator.probes.gpu import QUESTION
from orchestrator.probes.preflight import parse_preflight


def test_facts_of_this_machine(tmp_path):
    params = {
        "base": str(tmp_path / "not" / "yet"),
        "python": sys.executable,
        "tmux_wanted": False,
        "paths": ["/", "/no"],
    }
    found = preflight.preflight(params, b"", None)
    assert found["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["python"]["error"] is None
    assert any(os.path.isdir(os.path.join(path, "pytest")) for path in found["python"]["site_folders"])
    assert found["paths"] == {"/": True, "/no": False}
    assert found["disk"]["free_bytes"] > 0 and found["memory"]["total_bytes"] > 0
    assert found["tmux"] is None and found["nvidia_smi"] is None and not found["live"]["held"]


def test_a_python_that_is_not_there(tmp_path):
    found = preflight.preflight({"base": str(tmp_path), "python": "/no/python"}, b"", None)
    assert found["python"]["path"] is None and "/no/python" in found["python"]["error"]


def smi(tmp_path, monkeypatch, script, **params):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return preflight.preflight({"base": str(tmp_path), "nvidia_smi": ["nvidia-smi", "-q"], **params}, b"", None)


def test_what_nvidia_smi_says_is_kept_as_it_is(tmp_path, monkeypatch):
    found = smi(tmp_path, monkeypatch, 'echo "0, NVIDIA H200, 143771, [N/A]"')["nvidia_smi"]
    assert found == {"csv": "0, NVIDIA H200, 143771, [N/A]\n", "exit_code": 0, "error": None}


def test_an_error_on_stdout_is_the_reason(tmp_path, monkeypatch):
    found = smi(tmp_path, monkeypatch, "echo 'Field \"x\" is not a valid field to query.'; exit 2")["nvidia_smi"]
    assert found["exit_code"] == 2 and "not a valid field" in found["error"]


def test_a_hanging_nvidia_smi_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "SMI_DEADLINE_S", 0.3)
    found = smi(tmp_path, monkeypatch, "sleep 60")["nvidia_smi"]
    assert found["exit_code"] is None and "did not answer within" in found["error"]


WIDE = 'case "$*" in *vbios*) %s;; esac; echo "0, NVIDIA H200, 143771, 0, 0"'
ROW = "0, NVIDIA H200, 9.0, 143771, 96.00, 700, 1, Disabled, Default, Enabled, GPU-1, P0, 345, 1980, 30, 75, 0, 570.1"


@pytest.mark.parametrize(
    ("wide", "questions"), [(f'echo "{ROW}"; exit 0', 1), ('echo "Unable to determine the device handle"; exit 0', 2)]
)
def test_where_the_gpus_are_known_already_they_are_not_asked_for_again(tmp_path, monkeypatch, wide, questions):
    calls = tmp_path / "calls"
    found = smi(tmp_path, monkeypatch, f'echo "$*" >> {calls}\n{WIDE % wide}', nvidia_smi=list(QUESTION), gpus=True)
    assert len(calls.read_text().splitlines()) == questions
    said = parse_preflight({**found, "tmux": None}, None)
    assert said.gpus is not None and said.gpu_error is None
    assert [(gpu.index, gpu.name, gpu.memory_total_mib) for gpu in said.gpus] == [(0, "NVIDIA H200", 143771)]


def test_meminfo():
    text = "MemTotal:       16314240 kB\nMemAvailable:   1024 kB\nHugePages_Total:       0\n"
    assert preflight.parse_meminfo(text) == {"total_bytes": 16314240 * 1024, "available_bytes": 1024 * 1024}
    assert preflight.parse_meminfo("") == {"total_bytes": None, "available_bytes": None}
