"""NVML, as the agent's program asks it, and nvidia-smi tell the same of a real GPU that works, field by field.

What both said is written under the folder named by OUT, with the digits that name the machine replaced.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.gpu_csv import read_gpu_csv
from orchestrator.probes.gpu_xml import read_gpu_xml
from orchestrator.probes.nvml import failure_text, parse_nodes, parse_nvml

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-I", "-S", str(PROJECT / "orchestrator/agent/far/nvml.py")]
COLUMNS = (
    "index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "utilization.gpu", "utilization.memory",
    "temperature.gpu", "power.draw", "power.limit", "clocks.sm", "clocks.max.sm", "clocks.mem", "pstate",
    "clocks_event_reasons.active", "mig.mode.current", "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
EXACT = (
    "index", "name", "uuid", "bus", "memory_total_mib", "memory_used_mib", "power_limit_w", "sm_clock_max_mhz",
    "memory_clock_mhz", "performance_state", "mig", "ecc_corrected", "ecc_uncorrected",
)  # fmt: skip
NEAR = {
    "utilization_percent": 5,
    "memory_utilization_percent": 15,
    "temperature_c": 5,
    "power_w": 120.0,
    "sm_clock_mhz": 200,
}
"""What moves while one asks after the other, and by how much it may."""
WORK = (
    "import sys, torch\nx = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
    "keep = torch.empty(2 << 30, dtype=torch.uint8, device='cuda')\n"
    "while True:\n    for _ in range(50):\n        y = x @ x\n    torch.cuda.synchronize()\n"
    "    sys.stdout.write('.')\n    sys.stdout.flush()\n"
)


@pytest.fixture(scope="module")
def working() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses the GPU all the time, and has done so for a while."""
    process = subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE)
    assert process.stdout is not None
    began = time.monotonic()
    while time.monotonic() - began < 8:
        assert process.stdout.read(1) == b".", "the work has ended"
    yield process
    process.kill()
    process.wait()


def said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def masked(text: str) -> str:
    """The digits of UUIDs and serials: they name a machine, and no parser reads them."""
    text = re.sub(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", r"\1-00000000-1111-2222-3333-444444444444", text)
    return re.sub(r"(<(?:serial|board_id|module_id|gpu_part_number|[a-z_]*guid)>)[^<]*", r"\g<1>0", text)


def keep(name: str, text: str) -> None:
    if folder := os.environ.get("OUT"):
        (Path(folder) / name).write_text(masked(text))


def test_both_tell_the_same_of_a_gpu_that_works(working: subprocess.Popen[bytes]) -> None:
    smi = ("nvidia-smi", f"--query-gpu={','.join(COLUMNS)}", "--format=csv")
    line = said(*PROGRAM, "--count", "1")
    csv, xml = said(*smi), said("nvidia-smi", "-q", "-x")
    apps = said("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv")
    for name, text in (("nvml.json", line), ("smi.csv", csv), ("smi.xml", xml), ("apps.csv", apps)):
        keep(name, text)
    keep("table.txt", said("nvidia-smi"))
    told = json.loads(line)
    by_nvml = parse_nvml(told)
    rows, from_xml = read_gpu_csv(csv).gpus, read_gpu_xml(xml).gpus
    assert len(by_nvml) == len(rows) == len(from_xml) >= 1
    different = [
        (name, getattr(one, name), getattr(row, name))
        for one, row in zip(by_nvml, rows, strict=True)
        for name in EXACT
        if getattr(one, name) is None or getattr(one, name) != getattr(row, name)
    ]
    different += [
        (name, getattr(one, name), getattr(row, name))
        for one, row in zip(by_nvml, rows, strict=True)
        for name, most in NEAR.items()
        if not is_near(getattr(one, name), getattr(row, name), most)
    ]
    different += [
        (name, getattr(one, name), getattr(other, name))
        for one, other in zip(by_nvml, from_xml, strict=True)
        for name in ("name", "memory_total_mib", "memory_used_mib", "power_limit_w")
        if getattr(one, name) != getattr(other, name)
    ]
    assert different == []
    assert by_nvml[0].throttle is not None and set(by_nvml[0].throttle) ^ set(rows[0].throttle or ()) <= {
        "sw_power_cap"
    }
    assert worked(by_nvml[0])
    mine = [process for process in by_nvml[0].processes or () if process.used_mib and process.used_mib > 2048]
    assert len(mine) == 1 and f"{mine[0].pid}" in apps, "the process that works is listed by both"
    assert f"{mine[0].used_mib} MiB" in apps


def is_near(one: float | None, other: float | None, most: float) -> bool:
    return one is not None and other is not None and abs(one - other) <= most


def worked(gpu: GpuFact) -> bool:
    return (gpu.utilization_percent or 0) > 90 and (gpu.power_w or 0) > 200 and gpu.performance_state == "P0"


def test_a_look_costs_little(working: subprocess.Popen[bytes]) -> None:
    """One in a tenth of a second, so that ten seconds are a hundred; the start is taken out."""

    def cpu_s(count: int) -> tuple[float, list[dict[str, Any]]]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = said(*PROGRAM, "--count", str(count), "--interval", "0.1").splitlines()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, list(map(json.loads, lines))

    start_s, _ = cpu_s(1)
    all_s, records = cpu_s(101)
    each_ms = (all_s - start_s) / 100 * 1000
    took = sorted(record["took_s"] for record in records[1:])
    text = f"start {start_s * 1000:.0f} ms of CPU; a look of {len(records[0]['gpus'])} GPU: {each_ms:.2f} ms of CPU, "
    text += f"{took[len(took) // 2] * 1000:.2f} ms wall (median), {took[-1] * 1000:.2f} ms at most\n"
    keep("cost.txt", text)
    print(text)
    assert len(records) == 101 and each_ms < 10


NODES = "mknod -m 666 /dev/nvidiactl c 195 255 && mknod -m 666 /dev/nvidia0 c 195 0"
LOST = {
    "not-a-device": ("mount --bind /dev/null /dev/nvidiactl", "GPU access blocked by the operating system (code 17)"),
    "denied": (
        f"mount -t tmpfs -o nodev,mode=755 tmpfs /dev && {NODES}",
        "may not be opened (EACCES), the container has lost its GPUs",
    ),
}
"""Where the nodes are only missing, NVML makes them anew, for root."""


@pytest.mark.parametrize("how", LOST)
def test_a_driver_that_cannot_be_opened_is_said(how: str) -> None:
    """As in a container that has lost its devices: in a mount namespace of its own."""
    hide, words = LOST[how]
    argv = ["unshare", "--mount", "sh", "-c", hide + ' && exec "$@"', "sh", *PROGRAM, "--count", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    keep(f"{how}.json", done.stdout or done.stderr)
    if not done.stdout:
        pytest.skip(f"no namespaces here: {done.stderr}")
    record = json.loads(done.stdout)
    failed = {**record["error"], "library": record["library"], "control_node": record["control_node"]}
    said_of_it = failure_text(failed, parse_nodes({}))
    print(said_of_it)
    assert done.returncode == 3 and words in said_of_it
