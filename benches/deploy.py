"""Deploys of 200 files, 20 MB, against tar over pct and rsync into the container.

orch lab up --real; orch lab shell -- python benches/deploy.py; orch lab down
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from compare import PROJECT, Case, command, measure, publish, table
from status import HOST, TRUE

from orchestrator.lab.choice import open_lab
from orchestrator.lab.records import choose_lab

FILES, FILE_BYTES = 200, 100_000
ROUNDS = 3
EXEC = ["pct", "exec", "200", "--"]


def main() -> None:
    lab = open_lab(choose_lab(None))
    with tempfile.TemporaryDirectory(prefix="bench-deploy-") as text:
        folder = Path(text)
        payload = folder / "payload"
        write_payload(payload)
        inventory = write_inventory(folder, payload)
        argv = [sys.executable, "-m", "orchestrator", "deploy", "-i", str(inventory)]
        deploy = command(argv, cwd=PROJECT)
        kept = ["-o", f"ControlPath={folder}/m"]
        subprocess.run(["ssh", "-fNM", *kept, HOST], check=True)
        command(["ssh", *kept, HOST, *TRUE])()
        rsync = rsync_into_container(payload, kept)
        tar = f"tar -C {payload} -cf - . | ssh {' '.join(kept)} {HOST} '{' '.join(EXEC)} tar -C /root/bench-tar -xf -'"
        try:
            parts = []
            for cost_s in (0.0, 0.5):
                lab.set_pct_cost(cost_s)
                first = [
                    Case(
                        "tar over pct", command(["bash", "-o", "pipefail", "-c", tar]), lambda: fresh(kept, "bench-tar")
                    ),
                    Case("orch deploy, first", deploy, lambda: fresh(kept, "bench-orch")),
                ]
                seconds = measure(first, ROUNDS)
                again = [
                    Case("rsync, unchanged", rsync),
                    Case("orch deploy, unchanged", deploy),
                    Case("rsync, one file changed", rsync, lambda: change(payload)),
                    Case("orch deploy, one file changed", deploy, lambda: change(payload)),
                ]
                seconds.update(measure(again, ROUNDS))
                baseline = {
                    "orch deploy, first": "tar over pct",
                    "orch deploy, unchanged": "rsync, unchanged",
                    "orch deploy, one file changed": "rsync, one file changed",
                }
                aims = {name: "under 1 x" for name in baseline}
                aims["orch deploy, first"] = "at most 1.2 x"
                parts.append(f"pct costs {cost_s:g} s of CPU a start:\n\n{table(seconds, baseline, aims)}")
        finally:
            lab.set_pct_cost(0.0)
            subprocess.run(["ssh", "-O", "exit", *kept, HOST], capture_output=True, check=False)
    body = f"{FILES} files, {FILES * FILE_BYTES / 1e6:g} MB; tar and rsync over a kept master\n\n" + "\n\n".join(parts)
    publish("orch deploy", "orch lab shell -- python benches/deploy.py", body)


def write_payload(payload: Path) -> None:
    """Half random bytes, half text: neither all nor nothing compresses."""
    generator = random.Random(7)
    payload.mkdir()
    for number in range(FILES):
        data = generator.randbytes(FILE_BYTES // 2) + (b"step %d\n" % number) * (FILE_BYTES // 2 // 8)
        (payload / f"file{number:03}").write_bytes(data[:FILE_BYTES])


def change(payload: Path) -> None:
    path = payload / "file100"
    path.write_bytes(random.Random(path.stat().st_mtime_ns).randbytes(FILE_BYTES))


def write_inventory(folder: Path, payload: Path) -> Path:
    raw = yaml.safe_load((PROJECT / "inventory.yaml").read_text())
    target = next(iter(raw["hosts"].values()))["containers"]["ct200"]
    target.update(root="/root/bench-orch", payload="bench")
    raw["payloads"] = {"bench": {"folder": str(payload), "command": ["true"]}}
    path = folder / "inventory.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def fresh(kept: list[str], name: str) -> None:
    script = f"'rm -rf /root/{name} && mkdir /root/{name}'"
    command(["ssh", *kept, HOST, *EXEC, "sh", "-c", script])()


def rsync_into_container(payload: Path, kept: list[str]) -> object:
    """rsync with pct as part of its remote shell."""
    if shutil.which("rsync") is None:
        raise SystemExit("this benchmark compares with rsync: install it")
    fresh(kept, "bench-rsync")
    # -c, since orch compares contents too.
    program = f"{' '.join(EXEC)} rsync"
    return command(
        [
            "rsync",
            "-a",
            "-c",
            "--delete",
            "-e",
            f"ssh {' '.join(kept)}",
            f"--rsync-path={program}",
            f"{payload}/",
            f"{HOST}:/root/bench-rsync/",
        ]
    )


if __name__ == "__main__":
    main()
