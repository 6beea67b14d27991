"""What short commands spend here: this checkout beside another one, each with what it keeps here.

git worktree add /tmp/before COMMIT; orch lab up --real; orch lab shell -- python benches/start_cpu.py /tmp/before
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from compare import PROJECT, Case, Sample, command, measure, publish
from ledger import HOST, PACKAGES, RUNS, make
from status import TRUE, end_masters

VERBS = ("--help", "hosts", "runs", "diff", "status", "status, cold")
ROUNDS = 25
SSH = "ssh pct true, cold"


def main(other: Path) -> None:
    trees = {"before": other.resolve(), "now": PROJECT}
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as name:
        inventory = make(Path(name), RUNS)
        cases = [Case(SSH, command(["ssh", "-o", "ControlPath=none", HOST, *TRUE]))]
        for verb in VERBS:
            for which, tree in trees.items():
                subprocess.run([sys.executable, "-m", "compileall", "-q", "orchestrator", "remote_payload"], cwd=tree)
                run = orch(tree, verb.split(",")[0], inventory, Path(name) / which)
                cases.append(Case(f"{verb}, {which}", run, end_masters if verb.endswith("cold") else None))
        try:
            samples = measure(cases, ROUNDS)
        finally:
            end_masters()
    words = "orch lab shell -- python benches/start_cpu.py BEFORE"
    publish("What a short command spends", words, f"{RUNS} runs of {PACKAGES} packages\n\n{table(samples)}")


def orch(tree: Path, verb: str, inventory: Path, cache: Path) -> Callable[[], None]:
    """A diff of runs that are not equal ends with 1."""
    argv = [sys.executable, "-m", "orchestrator", verb, *([] if verb == "--help" else ["-i", str(inventory)])]
    # What the inventory was read as, and the index of runs, are kept for one orch: two would make them anew each time.
    environment = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache)}
    return command(["sh", "-c", '"$@" || [ $? -eq 1 ]', "sh", *argv], cwd=tree, env=environment)


def table(samples: dict[str, list[Sample]]) -> str:
    """CPU first, and the least of many: a busy machine changes those less."""
    rows = ["| case | CPU here: least | median | wall: least | median |", "|---|---|---|---|---|"]
    for name, found in samples.items():
        cpu, wall = [one.cpu_s * 1000 for one in found], [one.wall_s * 1000 for one in found]
        values = (f"{value:.0f} ms" for each in (cpu, wall) for value in (min(each), statistics.median(each)))
        rows.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    os.environ.pop("ORCH_INVENTORY", None)
    main(Path(sys.argv[1]))
