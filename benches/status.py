"""What `orch status` adds to the bare ssh and pct that it stands on, by transport, cold and over a kept connection.

orch lab up --real; orch lab shell -- python benches/status.py; orch lab down
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from compare import PROJECT, Case, command, measure, publish, table

from orchestrator.lab.choice import open_lab
from orchestrator.lab.records import choose_lab
from orchestrator.transport.runtime_folder import runtime_folder

HOST = "root@10.1.2.6"
TRUE = ["pct", "exec", "200", "--", "true"]
ROUNDS = 9


def main() -> None:
    lab = open_lab(choose_lab(None))
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as folder:
        master = f"{folder}/m"
        kept = ["-o", f"ControlPath={master}"]
        cases = [
            Case("ssh pct true, cold", command(["ssh", "-o", "ControlPath=none", HOST, *TRUE])),
            Case("ssh pct true, kept master", command(["ssh", *kept, HOST, *TRUE])),
        ]
        for transport in ("openssh", "asyncssh"):
            inventory = write_inventory(Path(folder), transport)
            argv = [sys.executable, "-m", "orchestrator", "status", "-i", str(inventory)]
            status = command(argv, cwd=PROJECT)
            cases.append(Case(f"orch status, {transport}, cold", status, end_masters))
            if transport == "openssh":
                cases.append(Case("orch status, openssh, kept", status))
        baseline = {case.name: cases[0].name for case in cases[1:]}
        aims = {case.name: "at most 2 x" for case in cases if case.name.endswith("cold") and case.name[:4] == "orch"}
        aims["orch status, openssh, kept"] = "at most 0.6 x"
        subprocess.run(["ssh", "-fNM", *kept, HOST], check=True)
        try:
            parts = []
            for cost_s in (0.0, 0.5):
                lab.set_pct_cost(cost_s)
                rounds = ROUNDS if cost_s == 0 else ROUNDS // 3
                parts.append(
                    f"pct costs {cost_s:g} s of CPU a start:\n\n{table(measure(cases, rounds), baseline, aims)}"
                )
        finally:
            lab.set_pct_cost(0.0)
            subprocess.run(["ssh", "-O", "exit", *kept, HOST], capture_output=True, check=False)
            end_masters()
    publish("orch status", "orch lab shell -- python benches/status.py", "\n\n".join(parts))


def write_inventory(folder: Path, transport: str) -> Path:
    raw = yaml.safe_load((PROJECT / "inventory.yaml").read_text())
    next(iter(raw["hosts"].values()))["transport"] = transport
    for payload in raw["payloads"].values():
        payload["folder"] = str(PROJECT / payload["folder"])
    path = folder / f"{transport}.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def end_masters() -> None:
    """Every kept connection that orch itself holds."""
    for socket in Path(runtime_folder()).iterdir():
        if socket.is_socket():
            subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={socket}", HOST], capture_output=True, check=False)


if __name__ == "__main__":
    os.environ.pop("ORCH_INVENTORY", None)
    main()
