#!@PYTHON@ -IS
"""The lab's nvidia-smi: eight NVIDIA H200, or what gpu.json beside it says, used by the lab's own processes.

Rule: it answers the queries below as the real one does and refuses everything else. Standard library only.

A process uses GPU i by holding gpus/nvidia<i> (in the lab also /dev/nvidia<i>) open; its memory in MiB is the
descriptor's position, and one at position 0 only looks. A copy that a fork made counts again. Pids are the host's, in
a container too; there the real one cannot find their names, and neither does this.

gpu.json (all optional): {"driver": "...", "devices": [{"memory_used_mib": 3, ...}],
"processes": [{"gpu": 0, "pid": 17, "name": "python", "used_memory_mib": 900}], "mode": "hang" | "mismatch" | "none",
"lost": [index, ...], "not_available": ["field", ...], "processes_hidden": true}
memory_used_mib: used by nobody who can be seen. processes: more of them. processes_hidden: none is listed, although
their memory counts, which is what some drivers do in a container.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

LAB = "@LAB@"
DRIVER = "580.95.05"
DEVICE_COUNT = 8
MEMORY_MIB = 143771
BUS = ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB")

UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "memory.reserved": "MiB",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "power.draw": "W",
    "power.limit": "W",
    "clocks.sm": "MHz",
    "clocks.current.sm": "MHz",
    "clocks.max.sm": "MHz",
    "used_gpu_memory": "MiB",
}
ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "clocks.current.sm": "clocks.sm"}
APP_FIELDS = {
    "timestamp": "timestamp",
    "gpu_name": "gpu_name",
    "gpu_bus_id": "gpu_bus_id",
    "gpu_serial": "gpu_serial",
    "gpu_uuid": "gpu_uuid",
    "pid": "pid",
    "process_name": "process_name",
    "name": "process_name",
    "used_gpu_memory": "used_gpu_memory",
    "used_memory": "used_gpu_memory",
}
NOT_AVAILABLE = "[N/A]"
NOT_FOUND = "[Not Found]"
LOOP_OPTIONS = {"-l": 1.0, "--loop": 1.0, "-lms": 0.001, "--loop-ms": 0.001}
"""Option -> the unit of its number in seconds."""


def fail(code: int, text: str) -> NoReturn:
    """The real one says its errors on stdout."""
    sys.stdout.write(text + "\n")
    raise SystemExit(code)


def bad_arguments() -> NoReturn:
    fail(1, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")


def read_state() -> dict[str, Any]:
    try:
        with open(os.path.join(LAB, "gpu.json"), encoding="utf-8") as stream:
            state: dict[str, Any] = json.load(stream)
    except FileNotFoundError:
        state = {}
    state["processes"] = [*state.get("processes", []), *holders()]
    given = state.get("devices", [{}] * DEVICE_COUNT)
    state["devices"] = [device_facts(index, device, state) for index, device in enumerate(given)]
    return state


def holders() -> list[dict[str, Any]]:
    """The lab's processes on its GPUs."""
    files = {}
    for index in range(DEVICE_COUNT):
        seen = os.stat(os.path.join(LAB, "gpus", "nvidia%d" % index))
        files[(seen.st_dev, seen.st_ino)] = index
    # In a container the host's /proc is shown there: the driver knows all processes, by the host's numbers.
    driver_proc = os.path.join(LAB, "driver-proc")
    inside = os.path.lexists(driver_proc + "/self")
    proc = driver_proc if inside else "/proc"
    found = []
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        for gpu, mib in sorted(held_by("%s/%d" % (proc, pid), files).items()):
            name = NOT_FOUND if inside else program(pid)
            found.append({"gpu": gpu, "pid": pid, "name": name, "used_memory_mib": mib})
    return found


def held_by(process: str, files: dict[tuple[int, int], int]) -> dict[int, int]:
    """GPU index -> MiB; a process that goes away or belongs to somebody else holds none."""
    found: dict[int, int] = {}
    try:
        for name in os.listdir(process + "/fd"):
            descriptor = "%s/fd/%s" % (process, name)
            if "nvidia" not in os.readlink(descriptor):
                continue
            seen = os.stat(descriptor)
            gpu = files.get((seen.st_dev, seen.st_ino))
            if gpu is None:
                continue
            with open("%s/fdinfo/%s" % (process, name), encoding="ascii") as stream:
                mib = int(stream.readline().split()[1])  # `pos:` is its first line
            if mib > 0:
                found[gpu] = max(mib, found.get(gpu, 0))
    except OSError:
        pass
    return found


def program(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return NOT_FOUND


def device_facts(index: int, given: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    apps = [app for app in state.get("processes", []) if app["gpu"] == index]
    used = given.get("memory_used_mib", 0) + sum(app.get("used_memory_mib") or 0 for app in apps)
    total = given.get("memory_total_mib", MEMORY_MIB)
    facts = {
        "index": index,
        "uuid": "GPU-5a4e8f0%x-1b2c-4d3e-8f90-0123456789ab" % (index % 16),
        "name": "NVIDIA H200",
        "count": len(state.get("devices", [None] * DEVICE_COUNT)),
        "driver_version": state.get("driver", DRIVER),
        "pci.bus_id": "00000000:%s:00.0" % BUS[index % len(BUS)],
        "serial": "165092300%04d" % index,
        "memory.total": total,
        "memory.used": used,
        "memory.free": total - used,
        "memory.reserved": 615,
        "utilization.gpu": 100 if apps else 0,
        "utilization.memory": 30 if apps else 0,
        "temperature.gpu": 61 if apps else 29,
        "power.draw": "650.12" if apps else "76.31",
        "power.limit": "700.00",
        "clocks.sm": 1980 if apps else 345,
        "clocks.max.sm": 1980,
        "pstate": "P0",
        "compute_mode": "Default",
        "compute_cap": "9.0",
        "persistence_mode": "Enabled",
        "mig.mode.current": "Disabled",
        "vbios_version": "96.00.9F.00.01",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": 0,
    }
    facts.update({key: value for key, value in given.items() if not key.startswith("memory_")})
    return facts


def choose(devices: list[dict[str, Any]], wanted: str | None) -> list[dict[str, Any]]:
    if wanted is None:
        return devices
    keys = ("index", "uuid", "pci.bus_id", "serial")
    chosen = [device for device in devices if any(wanted == str(device[key]) for key in keys)]
    if not chosen:
        fail(6, "No devices were found")
    return chosen


def refuse_lost(state: dict[str, Any], devices: list[dict[str, Any]]) -> None:
    """One lost GPU hides all the others from a query that includes it."""
    for device in devices:
        if device["index"] in state.get("lost", []):
            bus = device["pci.bus_id"][4:]
            fail(15, f"Unable to determine the device handle for GPU{bus}: GPU is lost.  "
                 "Reboot the system to recover this GPU")  # fmt: skip


def query(fields: str, layout: str, rows: list[dict[str, Any]], names: dict[str, str], absent: list[str]) -> None:
    """names: field as asked -> field as headed."""
    words = layout.split(",")
    asked = [field.strip() for field in fields.split(",")]
    for field in asked:
        if field not in names:
            fail(2, f'Field "{field}" is not a valid field to query.\n')
    headed = [names[field] for field in asked]
    if "noheader" not in words:
        print(", ".join(f"{name} [{UNITS[name]}]" if name in UNITS else name for name in headed))
    for row in rows:
        print(", ".join(cell(row, name, "nounits" not in words, absent) for name in headed))


def cell(row: dict[str, Any], name: str, units: bool, absent: list[str]) -> str:
    if name == "timestamp":
        return datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    value = row.get(ALIASES.get(name, name), row.get(name))
    if value is None or name in absent:
        return NOT_AVAILABLE
    return f"{value} {UNITS[name]}" if units and name in UNITS else str(value)


def parse(words: list[str]) -> dict[str, str]:
    """Option -> value; `-L` has none."""
    found: dict[str, str] = {}
    words = list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-L", "--list-gpus") and not equals:
            name, value = "-L", ""
        elif name in ("-i", "--id", *LOOP_OPTIONS):
            name = "-i" if name == "--id" else name
            if not equals:
                value = words.pop(0) if words else bad_arguments()
        elif name not in ("--query-gpu", "--query-compute-apps", "--format") or not value:
            fail(1, f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
                 f"(the lab's nvidia-smi does not know {word})")  # fmt: skip
        if name in found:
            bad_arguments()
        found[name] = value
    return found


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options = parse(sys.argv[1:])
    layout = options.get("--format", "csv").split(",")
    if layout[0] != "csv" or not set(layout[1:]) <= {"noheader", "nounits"}:
        bad_arguments()
    pause_s = loop_s(options)
    answer(options)
    while pause_s is not None:
        sys.stdout.flush()
        time.sleep(pause_s)
        if "--format" in options and "noheader" not in layout:
            layout.append("noheader")
            options["--format"] = ",".join(layout)
        answer(options)
    return 0


def loop_s(options: dict[str, str]) -> float | None:
    """Takes the option out. None: answer once."""
    loops = [name for name in options if name in LOOP_OPTIONS]
    if not loops:
        return None
    number = options.pop(loops[0])
    if len(loops) > 1 or not number.isdigit() or int(number) == 0:
        bad_arguments()
    return int(number) * LOOP_OPTIONS[loops[0]]


def answer(options: dict[str, str]) -> None:
    """One round, or the end with the real one's words and code."""
    state = read_state()
    if state.get("mode") == "hang":
        signal.pause()
    if state.get("mode") == "mismatch":
        fail(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95")
    if state.get("mode") == "none" or not state["devices"]:
        fail(6, "No devices were found")
    devices = choose(state["devices"], options.get("-i"))
    refuse_lost(state, devices)
    asked = set(options) - {"-i"}
    absent = state.get("not_available", [])
    if asked == {"-L"}:
        for device in devices:
            print(f"GPU {device['index']}: {device['name']} (UUID: {device['uuid']})")
    elif asked == {"--query-gpu", "--format"}:
        names = {name: name for name in (*devices[0], *ALIASES, "timestamp")}
        query(options["--query-gpu"], options["--format"], devices, names, absent)
    elif asked == {"--query-compute-apps", "--format"}:
        shown = {device["index"]: device for device in devices}
        listed = [] if state.get("processes_hidden") else state["processes"]
        rows = [app_facts(app, shown[app["gpu"]]) for app in listed if app["gpu"] in shown]
        query(options["--query-compute-apps"], options["--format"], rows, APP_FIELDS, absent)
    else:
        bad_arguments()


def app_facts(app: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    return {
        "pid": app["pid"],
        "process_name": app.get("name", "python"),
        "used_gpu_memory": app.get("used_memory_mib"),
        "gpu_name": device["name"],
        "gpu_uuid": device["uuid"],
        "gpu_bus_id": device["pci.bus_id"],
        "gpu_serial": device["serial"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
