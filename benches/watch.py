"""What a look of `orch status --watch` costs at both ends, beside a training that prints ten lines a second.

python benches/watch.py (as root: it makes a real lab of its own)
"""

from __future__ import annotations

import os
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

from orchestrator.lab.real import RealLab

LOOKS = 40
FIRST_LOOKS = 3
"""Not measured: imports, the first frame, the first answers of tmux and the cache."""
CASES: tuple[tuple[list[str], str], ...] = ((["--json"], "JSON lines"), ([], "drawn"))
"""Words, and what they are called; without --json it is measured at a terminal of 80 x 24."""
TRAINING = (
    "import time\nfor n in range(1, 10**6):\n    print(f'step {n}/1000000 loss 0.5 12.5 Ktok/s')\n    time.sleep(0.1)\n"
)
AGENT = r"""
for cmdline in /proc/[0-9]*/cmdline; do
  tr '\0' ' ' <"$cmdline" 2>/dev/null | grep -q '^[^ ]*python[^ ]* -I -S -c exec(' && cat "${cmdline%cmdline}stat"
done; true
"""


@dataclass(frozen=True)
class Cost:
    looks: int
    near_s: float
    far_s: float
    wall_s: float


def main() -> None:
    lab = RealLab.up(bound=True)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as folder:
            inventory = prepare(Path(folder))
            for verb in ("deploy", "launch"):
                done = lab.run(argv(inventory, verb), env=environment(), timeout_s=60, cwd=PROJECT)
                assert done.returncode == 0, done.stderr.decode()
            rows = []
            for smi in (False, True):
                if not smi:
                    lab.hide_program("nvidia-smi")
                for words, how in CASES:
                    cost = measure(lab, argv(inventory, "status", "--watch", *words))
                    rows.append(row(f"{how}, {'with' if smi else 'without'} nvidia-smi", cost))
                if not smi:
                    lab.show_program("nvidia-smi")
            lab.run(argv(inventory, "stop", "--kill"), env=environment(), timeout_s=60, cwd=PROJECT)
    finally:
        lab.down()
    head = "| case | looks | CPU here, a look | CPU of the agent, a look | share of a far core |\n|---|---|---|---|---|"
    aims = "Aims: under 10 ms here, under 1 % of a far core without nvidia-smi (its own CPU is in no column)."
    publish("orch status --watch", "python benches/watch.py", "\n".join([head, *rows]) + "\n\n" + aims)


def measure(lab: RealLab, command: list[str]) -> Cost:
    drawn = "--json" not in command
    near, far = os.openpty() if drawn else os.pipe()
    if drawn:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
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
    assert len(lines) == 1, lines
    return stat_cpu(lines[0])


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
