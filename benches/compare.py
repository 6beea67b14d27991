"""Times commands side by side in one run and writes the medians as a table into docs/benchmarks.md.

Rule: what is compared is interleaved round by round, so that a busy machine hurts both alike.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], None]
    prepare: Callable[[], None] | None = None
    """Done before each round of this case, outside the time."""


def command(argv: list[str], **options: object) -> Callable[[], None]:
    """Run argv; its failure ends the benchmark with what it said."""

    def run() -> None:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, **options)  # type: ignore[call-overload]
        if done.returncode:
            raise SystemExit(f"{argv}: exit code {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")

    return run


def measure(cases: list[Case], rounds: int) -> dict[str, list[float]]:
    """Case name -> seconds of each round; one round before the first is thrown away."""
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            if case.prepare:
                case.prepare()
            begin = time.perf_counter()
            case.run()
            if number:
                seconds[case.name].append(time.perf_counter() - begin)
    return seconds


def table(seconds: Mapping[str, list[float]], baseline: Mapping[str, str], aims: Mapping[str, str]) -> str:
    """baseline: case -> the case it is divided by. aims: case -> what it should be, in words."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = ["| case | median | min - max | ratio | aim |", "|---|---|---|---|---|"]
    for name, values in seconds.items():
        against = baseline.get(name)
        ratio = f"{medians[name] / medians[against]:.2f} x {against}" if against else ""
        low, high = min(values) * 1000, max(values) * 1000
        rows.append(
            f"| {name} | {medians[name] * 1000:.1f} ms | {low:.0f} - {high:.0f} | {ratio} | {aims.get(name, '')} |"
        )
    return "\n".join(rows)


def publish(section: str, command_line: str, body: str) -> None:
    """Replace the section of this name in docs/benchmarks.md, and print it."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    stamp = time.strftime("%Y-%m-%d")
    text = f"## {section}\n\n`{command_line}` on {stamp}, {machine}\n\n{body}\n"
    old = DOCUMENT.read_text() if DOCUMENT.exists() else "# Benchmarks\n\nMedians, side by side in one run.\n"
    pattern = re.compile(rf"^## {re.escape(section)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    new = pattern.sub(lambda match: text + "\n", old) if pattern.search(old) else old.rstrip() + "\n\n" + text
    DOCUMENT.write_text(new.rstrip() + "\n")
    print(text)
