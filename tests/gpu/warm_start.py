"""How soon a seeded compile cache lets the trainer begin, and for which devices it serves. Prints JSON lines.

    PYTHONPATH=. python tests/gpu/warm_start.py FOLDER starts devices

starts   the trainer through the agent's own ops: cold; save, clear, seed; warm; with a comment added to its code; a
         warm-up twice, and a run after it
processes  a warm-up of one process a device, twice, and a run after it; two GPUs
devices  flex_attention on cuda:0, then with that cache on cuda:1 of one process, then on GPU 1 seen as cuda:0

Standard library, torch and transformers only. Without a GPU the same steps run and compile less.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.agent.far import cache_census, cache_clear, cache_save, cache_seed, lease
from tests.run_place import Place
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[2]
PAYLOAD = PROJECT / "remote_payload"
SETTINGS = {
    "steps": 2,
    "text.documents": 24,
    "text.prompt_tokens": 16,
    "target.steps": 3,
    "target.batch": 2,
    "train.batch": 2,
    "train.length_buckets": 3,
    "checkpoint.every_steps": 10,
    "log.every_steps": 1,
    "evaluate.prompts": 1,
    "evaluate.control_prompts": 1,
    "evaluate.new_tokens": 8,
}
VARIABLES = {"inductor": "TORCHINDUCTOR_CACHE_DIR", "triton": "TRITON_CACHE_DIR", "extensions": "TORCH_EXTENSIONS_DIR"}
DEADLINE_S = 240.0

ON_ONE_DEVICE = """
import json, sys, time
began = time.time()
import torch
device = torch.device(sys.argv[1])
if device.type == "cuda":
    torch.cuda.set_device(device)
    sys.path.insert(0, sys.argv[2])
    from attention import Layout, attend, tile_mask
    anchors = torch.arange(100, 900, 100, device=device)[None]
    layout = Layout(anchors, torch.zeros_like(anchors), torch.ones_like(anchors, dtype=torch.bool), 1024, 16)
    query, key, value = (
        torch.randn(1, 4, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
        for length in (128, 1152, 1152)
    )
    work = lambda: attend(query, key, value, tile_mask(layout)).square().mean()
else:
    leaf = torch.ones(8, requires_grad=True)
    compiled = torch.compile(lambda x: x.sin().sum(), dynamic=False)
    work = lambda: compiled(leaf)
imported = time.time()
work().backward()
if device.type == "cuda":
    torch.cuda.synchronize(device)
from torch._dynamo.utils import counters
counted = {name: counters[group][key] for name, group, key in (
    ("cache_hits", "inductor", "fxgraph_cache_hit"), ("cache_misses", "inductor", "fxgraph_cache_miss"),
    ("aot_cache_hits", "aot_autograd", "autograd_cache_hit"),
    ("aot_cache_misses", "aot_autograd", "autograd_cache_miss"))}
print(json.dumps({"first_s": time.time() - imported, "imports_s": imported - began, **counted}))
"""


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Target:
    def __init__(self, folder: Path) -> None:
        self.place = Place(folder / "orch")
        self.folders = {kind: str(self.place.base / "caches" / "live" / kind) for kind in VARIABLES}
        self.payload = PAYLOAD
        self.place.call(lease.lease_acquire, who="me", host="here", pid=os.getpid())

    def train(self, what: str, *words: str, **settings: Any) -> dict[str, Any]:
        began = time.time()
        answer = self.place.start(
            "",
            argv=[sys.executable, str(self.payload / "train.py"), *words],
            spec={"settings": {**SETTINGS, **settings}, "targets": 1, "drafters": 1},
            environment={VARIABLES[kind]: path for kind, path in self.folders.items()},
        )
        folder = self.place.folder(answer)
        eventually(lambda: (folder / "exit.json").exists(), "its end", DEADLINE_S)
        code = json.loads((folder / "exit.json").read_text())["exit_code"]
        if code != 0:
            raise SystemExit((folder / "run.log").read_text()[-4000:])
        first = json.loads((folder / "runtime.json").read_text())["first_step"]
        compiled = json.loads((folder / "status.json").read_text())["compiled"]
        told = {"what": what, "first_step": first, "compiled": compiled, "new_files": self.written_since(began)}
        say(**told)
        return told

    def written_since(self, at: float) -> int:
        """Lock files apart: they are opened anew by a hit, too."""
        return sum(path.stat().st_ctime >= at and not path.name.endswith(".lock") for path in self.files())

    def files(self) -> list[Path]:
        return [path for top in self.folders.values() for path in sorted(Path(top).rglob("*")) if path.is_file()]

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.files()}

    def call(self, op: Any, **params: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.place.call(op, folders=self.folders, who="me", **params)
        return told

    def census(self, what: str) -> None:
        told = self.call(cache_census.cache_show)
        say(what=what, devices=told["devices"], kinds=told["kinds"])


def starts(folder: Path) -> None:
    target = Target(folder)
    cold = target.train("cold")
    target.census("census after cold")
    listing(target, folder / "listing.json")
    if not target.files():  # without a GPU
        stand_in = Path(target.folders["triton"], "stand-in")
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text("x")
    before = target.contents()
    saved = target.call(cache_save.cache_save, name="warm")
    target.call(cache_clear.cache_clear, why="clear")
    seeded = target.call(cache_seed.cache_seed, name="warm")
    say(what="save, clear, seed", saved=saved, seeded=seeded, byte_exact=target.contents() == before)
    warm = target.train("warm, seeded")
    edited = folder / "edited"
    shutil.copytree(PAYLOAD, edited, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for name in ("attention.py", "drafter.py"):
        source = (edited / name).read_text()
        (edited / name).write_text(source.replace("import torch\n", "import torch  # a comment\n\n\n", 1))
    target.payload = edited
    target.train("a comment added, elsewhere, lines moved")
    target.payload = PAYLOAD
    target.call(cache_clear.cache_clear, why="clear")
    for what, words in (("warm-up", ["--warmup"]), ("warm-up again", ["--warmup"]), ("run after the warm-up", [])):
        target.train(what, *words)
    parts = [one["first_step"] for one in (cold, warm)]
    say(
        what="cold by warm",
        whole=parts[0]["total_s"] / parts[1]["total_s"],
        without_imports_and_load=parts[0]["without_imports_and_load_s"] / parts[1]["without_imports_and_load_s"],
    )
    target.place.clean()


def processes(folder: Path) -> None:
    target = Target(folder)
    for what, words in (("warm-up", ["--warmup"]), ("warm-up again", ["--warmup"]), ("run after the warm-up", [])):
        target.train(what + ", a process each", *words, engine="processes")
    target.census("census of processes")
    target.place.clean()


def listing(target: Target, path: Path) -> None:
    """What a real cache looks like: each file's path and size, and of a graph what names its device."""
    rows = []
    for file in target.files():
        kind = file.relative_to(target.place.base / "caches" / "live")
        found = cache_census.GUARD.search(file.read_bytes()) if "fxgraph" in file.parts else None
        rows.append([str(kind), file.stat().st_size, found.group(0).decode() if found else None])
    path.write_text(json.dumps(rows))


def devices(folder: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        cases = [("cold", "cpu", None), ("again", "cpu", None)]
    else:
        cases = [("cuda:0, cold", "cuda:0", None), ("cuda:0 again, a new process", "cuda:0", None)]
    if torch.cuda.device_count() > 1:
        cases += [("GPU 1 seen as cuda:0", "cuda:0", "1"), ("cuda:1, of the same cache", "cuda:1", None)]
        cases += [("cuda:1 again", "cuda:1", None)]
    target = Target(folder)
    for what, device, visible in cases:
        began = time.time()
        environment = {**os.environ, **{VARIABLES[kind]: path for kind, path in target.folders.items()}}
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        argv = [sys.executable, "-c", ON_ONE_DEVICE, device, str(PAYLOAD)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        say(what=what, **json.loads(done.stdout.splitlines()[-1]), new_files=target.written_since(began))
    target.census("census of both")


def main(folder: Path, parts: list[str]) -> None:
    for part in parts:
        (folder / part).mkdir(parents=True)
        {"starts": starts, "devices": devices, "processes": processes}[part](folder / part)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
