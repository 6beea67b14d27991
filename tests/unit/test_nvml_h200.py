"""A real H200, asked through NVML and by nvidia-smi: the same facts, field by field, by the parsers of status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.probes.gpu import GpuProcess
from orchestrator.probes.gpu_apps import read_apps
from orchestrator.probes.gpu_csv import read_gpu_csv
from orchestrator.probes.gpu_xml import read_gpu_xml
from orchestrator.probes.nvml import failure_text, parse_nodes, parse_nvml

FOLDER = Path(__file__).parents[1] / "data" / "gpu" / "h200-580.159.04"
SAME = (
    "index", "name", "uuid", "bus", "memory_total_mib", "memory_used_mib", "power_limit_w",
    "sm_clock_max_mhz", "memory_clock_mhz", "performance_state", "throttle", "mig", "ecc_corrected", "ecc_uncorrected",
)  # fmt: skip
MOVES = {
    "utilization_percent": 2,
    "memory_utilization_percent": 5,
    "temperature_c": 2,
    "power_w": 20.0,
    "sm_clock_mhz": 100,
}
BY_XML = set(SAME) - {"index"}
"""Its order is the index."""


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def test_every_field_is_the_same_in_all_three() -> None:
    (by_nvml,) = parse_nvml(json.loads(text("nvml.json")))
    (by_csv,), (by_xml,) = read_gpu_csv(text("smi.csv")).gpus, read_gpu_xml(text("smi.xml")).gpus
    for name in SAME:
        told = getattr(by_nvml, name)
        assert told is not None and told == getattr(by_csv, name), name
        assert name not in BY_XML or told == getattr(by_xml, name), name
    for name, most in MOVES.items():
        numbers = [getattr(gpu, name) for gpu in (by_nvml, by_csv, by_xml)]
        assert max(numbers) - min(numbers) <= most, name
    assert (by_nvml.name, by_nvml.memory_total_mib, by_nvml.throttle) == ("NVIDIA H200", 143771, ("sw_power_cap",))


def test_the_processes_are_the_same() -> None:
    (by_nvml,) = parse_nvml(json.loads(text("nvml.json")))
    (app,) = read_apps(text("apps.csv")).processes
    assert by_nvml.processes == (GpuProcess(app.pid, app.used_mib),) and app.used_mib == 3050


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("denied.json", "NVML: Insufficient Permissions (code 4): /dev/nvidiactl may not be opened (EACCES)"),
        ("not-a-device.json", "NVML: GPU access blocked by the operating system (code 17)"),
    ],
)
def test_why_it_does_not_work_is_said(name: str, said: str) -> None:
    record = json.loads(text(name))
    failed = {**record["error"], "library": record["library"], "control_node": record["control_node"]}
    assert failure_text(failed, parse_nodes({})).startswith(said)
