"""What `orch runs` and `orch diff` take with 500 runs of 1,000 packages, beside the bare ssh and pct, and with 2 runs.

orch lab up --real; orch lab shell -- python benches/ledger.py; orch lab down
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml
from compare import PROJECT, Case, command, measure, publish, table
from status import end_masters

from orchestrator.ledger.store import default_path

HOST = "root@10.1.2.6"
RUNS, PACKAGES = 500, 1000
ROUNDS = 9


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as name:
        folder = Path(name)
        many, few = (make(folder, count) for count in (RUNS, 2))
        ssh = ["ssh", "-o", f"ControlPath={folder}/m", HOST]
        subprocess.run([*ssh[:1], "-fNM", *ssh[1:]], check=True)
        cases = [
            Case("ssh pct true, kept master", command([*ssh, "pct", "exec", "200", "--", "true"])),
            Case("orch runs, 2 runs", orch("runs", many=few)),
            Case(f"orch runs, {RUNS} runs", orch("runs", many=many)),
            Case(f"orch runs, {RUNS} runs, no index yet", orch("runs", many=many), forget),
            Case("orch diff, 2 runs", orch("diff", many=few)),
            Case(f"orch diff, {RUNS} runs", orch("diff", many=many)),
        ]
        names = [case.name for case in cases]
        baseline = {names[1]: names[0], names[2]: names[1], names[3]: names[1], names[5]: names[4]}
        aims = {names[2]: "at most 0.3 s", names[5]: "at most 0.5 s"}
        try:
            body = table(measure(cases, ROUNDS), baseline, aims)
        finally:
            subprocess.run([*ssh[:-1], "-O", "exit", HOST], capture_output=True, check=False)
            end_masters()
    publish("orch runs and diff", "orch lab shell -- python benches/ledger.py", f"{PACKAGES} packages a run\n\n{body}")


def orch(word: str, *, many: Path) -> Callable[[], None]:
    """diff answers with 1 where something differs."""
    argv = [sys.executable, "-m", "orchestrator", word, "-i", str(many)]
    return command(["sh", "-c", '"$@" || [ $? -eq 1 ]', "sh", *argv], cwd=PROJECT)


def make(folder: Path, count: int) -> Path:
    """An inventory whose target has so many runs."""
    raw = yaml.safe_load((PROJECT / "inventory.yaml").read_text())
    for payload in raw["payloads"].values():
        payload["folder"] = str(PROJECT / payload["folder"])
    target = next(iter(next(iter(raw["hosts"].values()))["containers"].values()))
    target["root"] = f"/root/bench{count}"
    path = folder / f"{count}.yaml"
    path.write_text(yaml.safe_dump(raw))
    words = ["python3", "-", f"{target['root']}/orch", str(count), str(PACKAGES)]
    argv = [sys.executable, "-m", "orchestrator", "exec", "-i", str(path), "--", *words]
    made = (PROJECT / "benches" / "made_runs.py").read_bytes()
    subprocess.run(argv, input=made, cwd=PROJECT, check=True)
    return path


def forget() -> None:
    default_path().unlink(missing_ok=True)


if __name__ == "__main__":
    os.environ.pop("ORCH_INVENTORY", None)
    main()
