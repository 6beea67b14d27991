"""What a look of `orch status --watch` costs at both ends, beside a training that prints ten lines a second.

python benches/watch.py [one|many] (as root: it makes a real lab of its own)

`many`: 50 targets in one orch. They are 50 agents on the lab's one host, so what they cost there is in no number.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml
from compare import PROJECT, publish

from orchestrator.lab import doubles
from orchestrator.lab.real import RealLab

LOOKS = 40
MANY = 50
MANY_S = 30.0
FIRST_LOOKS = 3
"""Not measured: imports, the first frame, the first answers of tmux and the cache."""
CASES: tuple[tuple[list[str], str], ...] = ((["--json"], "JSON lines"), ([], "drawn"))
"""Words, and what they are called; without --json it is measured at a terminal of 80 x 24."""
TRAINING = (
    "import time\nfor n in range(1, 10**6):\n    print(f'step {n}/1000000 loss 0.5 12.5 Ktok/s')\n    time.sleep(0.1)\n"
)
AGENT = r"""
for cmdline in /proc/[0-9]*/cmdline; do
  tr '\0' ' ' <"$cmdline" 2>/dev/null | grep -qE '^[^ ]*python[^ ]* -I -S -c (exec\(|import os,sys)' &&
    cat "${cmdline%cmdline}stat"
done; true
"""


@dataclass(frozen=True)
class Cost:
    looks: int
    near_s: float
    far_s: float
    wall_s: float


def main() -> None:
    wanted = sys.argv[1:] or ["one", "many"]
    lab = RealLab.up(bound=True)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as folder:
            for name, bench in (("one", one_target), ("many", many_targets)):
                if name in wanted:
                    bench(lab, Path(folder))
    finally:
        lab.down()


def orch(lab: RealLab, inventory: Path, *words: str) -> None:
    done = lab.run(argv(inventory, *words), env=environment(), timeout_s=120, cwd=PROJECT)
    assert done.returncode == 0, done.stderr.decode()


def one_target(lab: RealLab, folder: Path) -> None:
    inventory = prepare(folder)
    orch(lab, inventory, "deploy")
    orch(lab, inventory, "launch")
    rows = []
    for gpus in ("nothing that tells of GPUs", "nvidia-smi", "NVML"):
        if gpus == "nothing that tells of GPUs":
            lab.hide_program("nvidia-smi")
        if gpus == "NVML":
            lab.show_nvml()
        for words, how in CASES:
            rows.append(row(f"{how}, with {gpus}", measure(lab, argv(inventory, "status", "--watch", *words))))
        lab.show_program("nvidia-smi")
    lab.hide_nvml()
    orch(lab, inventory, "stop", "--kill")
    head = (
        "| case | looks | CPU here, a look | CPU of the agent and its NVML child, a look | share of a far core |\n"
        "|---|---|---|---|---|"
    )
    aims = (
        "Aims: under 10 ms here; under 1 % of a far core without nvidia-smi, whose own CPU is in no column. The NVML "
    )
    aims += "is the lab's, of 8 GPUs, and looks through all of /proc for who uses them, which the real one need not."
    publish("orch status --watch", "python benches/watch.py one", "\n".join([head, *rows]) + "\n\n" + aims)


def many_targets(lab: RealLab, folder: Path) -> None:
    inventory = prepare_many(folder)
    orch(lab, inventory, "deploy", "b00")
    orch(lab, inventory, "launch", "b00")
    lab.host_run(["ln", "-sf", f"{lab.shared_seen_at}/{doubles.build_nvml(lab.shared).name}", "/usr/lib/"])
    rows = []
    for words, how in CASES:
        near_s, far, wall_s = measure_many(lab, argv(inventory, "status", "--watch", "all", *words))
        reports = f"{far / wall_s / MANY:.2f}" if far else "-"
        rows.append(
            f"| {how} | {wall_s:.0f} s | {reports} | {near_s / wall_s:.1%} | {near_s / wall_s / MANY * 1000:.1f} ms |"
        )
    orch(lab, inventory, "stop", "--kill", "b00")
    head = f"| {MANY} targets | watched for | reports a second, each "
    head += "| share of a core here | here, a target and second |\n"
    head += "|---|---|---|---|---|"
    text = (
        "\n".join([head, *rows]) + "\n\nAim: under half a core here, ssh included; each target tells of 8 GPUs by NVML."
    )
    publish("orch status --watch of many targets", "python benches/watch.py many", text)


def measure_many(lab: RealLab, command: list[str]) -> tuple[float, int, float]:
    """CPU here, JSON lines that came (0: drawn), wall time; once every target has been heard for a while."""
    drawn = "--json" not in command
    near, far = open_output(drawn, rows=MANY + 4)
    process = lab.popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=far, stderr=subprocess.PIPE, cwd=PROJECT
    )
    os.close(far)
    seen = Seen()
    threading.Thread(target=seen.drain, args=(near,), daemon=True).start()
    try:
        until = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < until and not seen.heard_all(drawn):
            time.sleep(0.5)
        assert seen.heard_all(drawn), f"{len(seen.targets)} targets, {process.poll()}: {seen.tail[-2000:]!r}"
        time.sleep(10)
        began, cpu, lines = time.monotonic(), cpu_of(process.pid), seen.lines
        time.sleep(MANY_S)
        return cpu_of(process.pid) - cpu, seen.lines - lines, time.monotonic() - began
    finally:
        process.terminate()
        process.wait()


class Seen:
    """What has been read of the watch."""

    def __init__(self) -> None:
        self.lines = 0
        self.targets: set[bytes] = set()
        self.tail = b""

    def drain(self, stream: int) -> None:
        while True:
            try:
                data = os.read(stream, 1 << 20)
            except OSError:
                return
            if not data:
                return
            self.tail = (self.tail + data)[-(1 << 20) :]
            self.targets.update(re.findall(rb'"target": "(b\d\d)"', data))
            self.lines += data.count(b'"schema"')

    def heard_all(self, drawn: bool) -> bool:
        if not drawn:
            return len(self.targets) == MANY
        frame = self.tail.rpartition(b"\x1b[H")[2]
        return frame.count(b"running for") >= MANY


def open_output(drawn: bool, rows: int = 24) -> tuple[int, int]:
    if not drawn:
        return os.pipe()
    import fcntl
    import struct
    import termios

    near, far = os.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80 if rows == 24 else 160, 0, 0))
    return near, far


def prepare_many(folder: Path) -> Path:
    payload = folder / "many"
    payload.mkdir()
    (payload / "train.py").write_text(TRAINING)
    host = {"address": "10.1.2.6", "user": "root", "root": "/root/bench-many", "payload": "foreign"}
    hosts = {f"b{number:02}": dict(host) for number in range(MANY)}
    payloads = {"foreign": {"folder": str(payload), "command": ["python3", "train.py"]}}
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump({"hosts": hosts, "payloads": payloads}, default_flow_style=False))
    return path


def measure(lab: RealLab, command: list[str]) -> Cost:
    drawn = "--json" not in command
    near, far = open_output(drawn)
    process = lab.popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=far, stderr=subprocess.PIPE, cwd=PROJECT
    )
    os.close(far)
    times: list[float] = []
    threading.Thread(target=drain, args=(near, times), daemon=True).start()
    try:
        wait(process, times, FIRST_LOOKS)
        began, first, near_s, far_s = time.monotonic(), len(times), cpu_of(process.pid), agent_cpu(lab)
        wait(process, times, first + LOOKS)
        return Cost(len(times) - first, cpu_of(process.pid) - near_s, agent_cpu(lab) - far_s, time.monotonic() - began)
    finally:
        process.terminate()
        process.wait()


def drain(stream: int, times: list[float]) -> None:
    """One entry a look: a line, or what a terminal gets at once."""
    while True:
        try:
            data = os.read(stream, 1 << 20)
        except OSError:
            return
        if not data:
            return
        now = time.monotonic()
        if not times or now - times[-1] > 0.3:
            times.append(now)


def wait(process: subprocess.Popen[bytes], times: list[float], looks: int) -> None:
    until = time.monotonic() + looks * 2 + 30
    while len(times) < looks:
        if process.poll() is not None or time.monotonic() > until:
            stderr: IO[bytes] | None = process.stderr
            raise SystemExit(f"the watch ended: {stderr.read().decode() if stderr else ''}")
        time.sleep(0.05)


def cpu_of(pid: int) -> float:
    """User and system seconds of the orch process and of the ssh it started."""
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        children = [int(word) for word in stream.read().split()]
    return sum(stat_cpu(Path(f"/proc/{one}/stat").read_text()) for one in (pid, *children))


def agent_cpu(lab: RealLab) -> float:
    done = subprocess.run(lab.far_command(["sh", "-c", AGENT], 200), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert 1 <= len(lines) <= 2, lines
    return sum(map(stat_cpu, lines))


def stat_cpu(text: str) -> float:
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(name: str, cost: Cost) -> str:
    here, there = cost.near_s / cost.looks * 1000, cost.far_s / cost.looks * 1000
    return f"| {name} | {cost.looks} | {here:.1f} ms | {there:.1f} ms | {cost.far_s / cost.wall_s:.2%} |"


def prepare(folder: Path) -> Path:
    payload = folder / "payload"
    payload.mkdir()
    (payload / "train.py").write_text(TRAINING)
    raw = yaml.safe_load((PROJECT / "inventory.yaml").read_text())
    container = next(iter(raw["hosts"].values()))["containers"]["ct200"]
    container.update(root=f"{container['root'].rstrip('/')}/bench-watch", payload="foreign")
    raw["payloads"] = {"foreign": {"folder": str(payload), "command": ["python3", "train.py"], "session": "bench"}}
    path = folder / "inventory.yaml"
    path.write_text(yaml.safe_dump({"hosts": raw["hosts"], "payloads": raw["payloads"]}))
    return path


def argv(inventory: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", words[0], "-i", str(inventory), *words[1:]]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(PROJECT), "TERM": "xterm-256color"}


if __name__ == "__main__":
    main()
