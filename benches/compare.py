"""Times commands side by side in one run and writes the medians as a table into docs/benchmarks.md.

Rule: what is compared is interleaved round by round, so that a busy machine hurts both alike.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
DOCUMENT = PROJECT / "docs" / "benchmarks.md"
# People have their .pyc files, and orch may be this checkout rather than installed.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPATH"] = str(PROJECT)
sys.path.insert(0, str(PROJECT))


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], None]
    prepare: Callable[[], None] | None = None
    """Done before each round of this case, outside the time."""


@dataclass(frozen=True)
class Sample:
    wall_s: float
    cpu_s: float
    """Of the processes here; what a far side or a kept connection spends is not in it."""


def command(argv: list[str], **options: object) -> Callable[[], None]:
    """Run argv; its failure ends the benchmark with what it said."""

    def run() -> None:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, **options)  # type: ignore[call-overload]
        if done.returncode:
            raise SystemExit(f"{argv}: exit code {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")

    return run


def measure(cases: list[Case], rounds: int) -> dict[str, list[Sample]]:
    """Case name -> a sample of each round; one round before the first is thrown away."""
    samples: dict[str, list[Sample]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            if case.prepare:
                case.prepare()
            begin, cpu_before = time.perf_counter(), _children_cpu_s()
            case.run()
            if number:
                samples[case.name].append(Sample(time.perf_counter() - begin, _children_cpu_s() - cpu_before))
    return samples


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(samples: Mapping[str, list[Sample]], baseline: Mapping[str, str], aims: Mapping[str, str]) -> str:
    """baseline: case -> the case it is divided by. aims: case -> what it should be, in words."""
    medians = {name: statistics.median(sample.wall_s for sample in found) for name, found in samples.items()}
    rows = ["| case | median | min - max | CPU here | ratio | aim |", "|---|---|---|---|---|---|"]
    for name, found in samples.items():
        against = baseline.get(name)
        ratio = f"{medians[name] / medians[against]:.2f} x {against}" if against else ""
        values = [sample.wall_s * 1000 for sample in found]
        cpu_ms = statistics.median(sample.cpu_s for sample in found) * 1000
        rows.append(
            f"| {name} | {medians[name] * 1000:.1f} ms "
            f"| {min(values):.0f} - {max(values):.0f} | {cpu_ms:.0f} ms | {ratio} | {aims.get(name, '')} |"
        )
    return "\n".join(rows)


def publish(section: str, command_line: str, body: str) -> None:
    """Replace the section of this name in docs/benchmarks.md, and print it."""
    # The load at the end: on a busy machine what needs more CPU looks worse than it is.
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}, Python "
    machine += platform.python_version()
    stamp = time.strftime("%Y-%m-%d")
    text = f"## {section}\n\n`{command_line}` on {stamp}, {machine}\n\n{body}\n"
    old = DOCUMENT.read_text() if DOCUMENT.exists() else "# Benchmarks\n\nMedians, side by side in one run.\n"
    pattern = re.compile(rf"^## {re.escape(section)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    new = pattern.sub(lambda match: text + "\n", old) if pattern.search(old) else old.rstrip() + "\n\n" + text
    DOCUMENT.write_text(new.rstrip() + "\n")
    print(text)
