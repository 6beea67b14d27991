"""Runs of a script that writes what a trainer leaves, on this machine as a target, for what publishes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from orchestrator.inventory.loader import load_inventory

TRAINER = '''\
"""Leaves an export and two checkpoints. Settings: seed, kib (of weights), tau, code, wait (for a file)."""
import json, os, pathlib, random, struct, sys, time

folder = pathlib.Path(os.environ["ORCH_RUN_DIR"])
settings = json.loads((folder / "run.json").read_text())["settings"]


def model(into, seed):
    into.mkdir(parents=True)
    data = random.Random(seed).randbytes(1024 * int(settings.get("kib", 64)))
    head = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    whole = struct.pack("<Q", len(head)) + head + data
    (into / "model.safetensors").write_bytes(whole)
    (into / "config.json").write_text(json.dumps({"seed": seed}))
    (into / "README.md").write_text("# drafter")


cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
cache.mkdir(parents=True, exist_ok=True)
(cache / "kernel.py").write_text("pass")
seed = int(settings.get("seed", 1))
for step in (1, 2):
    model(folder / "checkpoints" / f"step-{step}", seed * 100 + step)
    there = folder / "checkpoints" / f"step-{step}"
    (there / "checkpoint.json").write_text(json.dumps({"step": step, "acceptance": 2.5}))
    (there / "_SUCCESS").touch()
model(folder / "export", seed)
(folder / "result.json").write_text(json.dumps({"acceptance_length": settings.get("tau", 3.0), "lossless": True}))
print("step 2 loss 1.0 12.5 Ktok/s", flush=True)
while settings.get("wait") and not os.path.exists(settings["wait"]):
    time.sleep(0.01)
sys.exit(int(settings.get("code", 0)))
'''


class Trained:
    """A target that is this machine, with runs to publish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        payload = folder / "payload"
        payload.mkdir()
        (payload / "train.py").write_text(TRAINER)
        self.inventory = folder / "inventory.yaml"
        self.inventory.write_text(
            f"hosts:\n  box: {{transport: local, root: {folder}/root, payload: p}}\n"
            f"payloads:\n  p: {{folder: {payload}, command: [python3, train.py]}}\n"
        )
        assert self.orch("deploy").returncode == 0

    @property
    def target(self):
        return load_inventory(self.inventory).targets["box"]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "orchestrator", words[0], "-i", str(self.inventory), *words[1:]]

    def orch(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*words), capture_output=True, text=True, check=False, timeout=60)

    def train(self, *, end: bool = True, **settings: object) -> str:
        """The run's id."""
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        done = self.orch("launch", *(["--wait", "end"] if end else []), *words)
        assert done.returncode in (0, 11), done.stderr
        listed = json.loads(self.orch("runs", "--json").stdout)
        return str(listed["runs"][0]["run_id"])

    def export(self, run_id: str) -> dict[str, bytes]:
        return files(self.folder / "root" / "orch" / "runs" / run_id / "export")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
