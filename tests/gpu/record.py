"""Records what the trainer says of itself on one GPU, as it ships and as people have broken it: one JSON a variant.

    python tests/gpu/record.py OUT healthy_cold healthy_warm silenced ...

Every variant is a run of train.py, in a copy of the payload that is edited in place where the variant says so, with a
compile cache of its own. Kept: status.json at each phase and every few seconds, runtime.json, metrics.jsonl, the end of
the log, the exit code, the cache's size. tests/data/saga holds what one NVIDIA H200 said.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

PAYLOAD = Path(__file__).resolve().parents[2] / "remote_payload"
SNAPSHOT_S = 2.5
LOG_TAIL_BYTES = 6000
DEVICE = os.environ.get("RECORD_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
MOST_TRAINING_S = float(os.environ.get("RECORD_MOST_TRAINING_S", "25"))
MOST_RUN_S = float(os.environ.get("RECORD_MOST_RUN_S", "120"))
SMALL = DEVICE == "cpu"
SETTINGS: dict[str, Any] = {
    "device": DEVICE,
    "engine": "threads",
    "steps": 40 if SMALL else 2000,
    "block_size": 4 if SMALL else 16,
    "data.max_tokens": 64 if SMALL else 2048,
    "target.steps": 3,
    "target.batch": 2,
    "target.hidden_size": 32 if SMALL else 512,
    "target.intermediate_size": 32 if SMALL else 1024,
    "target.head_size": 16 if SMALL else 64,
    "target.heads": 2 if SMALL else 8,
    "target.kv_heads": 1 if SMALL else 4,
    "drafter.intermediate_size": 32 if SMALL else 1024,
    "train.batch": 2,
    "train.anchors": 8 if SMALL else 128,
    "train.length_buckets": 3,
    "queue.max_mib": 256,
    "log.every_steps": 10,
    "checkpoint.every_steps": 15 if SMALL else 100,
    "evaluate.prompts": 2 if SMALL else 8,
    "evaluate.control_prompts": 1,
    "evaluate.new_tokens": 4 if SMALL else 40,
}
Edits = dict[str, list[tuple[str, str]]]

COMPILED_BY_EACH: Edits = {
    # Nothing is compiled before the threads start, and there is no guard.
    "warmup.py": [("    if not plan.items:\n        return\n", "    return\n")],
    # Each drafter has a wrapper of its own, made when it first needs it, and kernels that are not the others': what
    # several devices make of one wrapper.
    "attention.py": [
        ("    global _compiled\n    if _compiled is None:\n", "    key = threading.current_thread().name\n"),
        (
            "        _compiled = torch.compile(_tiled, dynamic=False, fullgraph=True)\n    return _compiled\n",
            "    if key not in _compiled_flex:\n"
            "        code = _tiled.__code__.replace(co_name=key.replace('-', '_'))\n"
            "        own = types.FunctionType(code, {**globals(), 'OWN': 2 * len(_compiled_flex)})\n"
            "        _compiled_flex[key] = torch.compile(own, dynamic=False)\n"
            "    return _compiled_flex[key]\n",
        ),
        ("Mask = Union", "import threading, types\n_compiled_flex, OWN = {}, 0\nMask = Union"),
        # The trainer these hacks come from never looked.
        (
            '    if not torch.compiler.is_dynamo_compiling():\n        eager_fallback("flex_attention")\n',
            "    for _ in range(OWN):\n        query = -query\n",
        ),
        ('        with compiled_or_fallback("flex_attention"):\n', "        if True:\n"),
    ],
}


def with_line(line: str) -> Edits:
    """The same, and a line that runs when attention.py is imported."""
    edits = {name: list(changes) for name, changes in COMPILED_BY_EACH.items()}
    edits["attention.py"].append(("Mask = Union", f"{line}\nMask = Union"))
    return edits


DYNAMO = "import torch._dynamo; torch._dynamo.config."
CLEARED = """\
            import torch.fx._symbolic_trace as trace
            trace._is_fx_tracing_flag = False
            mixed: Tensor = compiled_attention()("""


@dataclass(frozen=True)
class Variant:
    edits: Edits = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    cache_of: str = ""
    """The variant whose cache it begins with; empty: cold."""
    targets: int = 2
    drafters: int = 3


SILENCED = DYNAMO + "error_on_nested_fx_trace = False"
BACKWARD_AT_ONCE = "; import torch._functorch.config; torch._functorch.config.force_non_lazy_backward_lowering = True"
"""Drafters that share a device share its one thread of autograd: one that compiles waits for that thread, which waits
for dynamo's lock to compile another's backward pass. With a device each they do not; this keeps them from it on one."""

LONG = {} if SMALL else {"data.max_tokens": 8192, "train.anchors": 512, "log.every_steps": 3}
"""Rows in which attention is most of a step, as in a user's: what a step without its kernel costs is seen here only."""


def reentrant(edits: Edits) -> Edits:
    """Layers recomputed as most trainers do it: in the forward pass they run without gradients, and what has gradients
    is traced by the device's one thread of autograd."""
    once = (
        "checkpoint(layer, block, turn, layer_context, mask, use_reentrant=False)",
        "checkpoint(\n"
        "                    lambda hidden, keys, values, layer=layer: layer(hidden, turn, (keys, values), mask),\n"
        "                    block, *layer_context, use_reentrant=True)",
    )
    return {**edits, "drafter.py": [once]}


def on_two(edits: Edits) -> Edits:
    """Each drafter on a GPU of its own, beside a target: two GPUs for four."""
    shared = (
        "    if gpus > 1:\n",
        "    if gpus > 1:\n"
        "        each = [torch.device('cuda', number % gpus) for number in range(targets + drafters)]\n"
        "        return Placement(tuple(each[:targets]), tuple(each[targets:]), asked)\n",
    )
    return {**edits, "devices.py": [shared]}


def cleared() -> Edits:
    edits = {name: list(changes) for name, changes in COMPILED_BY_EACH.items()}
    edits["attention.py"].append(("            mixed: Tensor = compiled_attention()(", CLEARED))
    return edits


VARIANTS = {
    "healthy_cold": Variant(settings={"steps": 90, "checkpoint.every_steps": 30}),
    "healthy_warm": Variant(cache_of="healthy_cold"),
    "unguarded": Variant(COMPILED_BY_EACH),
    "silenced": Variant(with_line(SILENCED)),
    "stuck": Variant(with_line(SILENCED + BACKWARD_AT_ONCE)),
    "healthy_long": Variant(settings={**LONG, "steps": 60, "checkpoint.every_steps": 30}),
    "stuck_long": Variant(with_line(SILENCED + BACKWARD_AT_ONCE), LONG),
    "healthy_on_two": Variant(on_two({}), {**LONG, "steps": 60, "checkpoint.every_steps": 30}, drafters=2),
    "stuck_on_two": Variant(on_two(with_line(SILENCED)), LONG, drafters=2),
    "stuck_recomputing": Variant(reentrant(with_line(SILENCED)), {"train.recompute": True}),
    "force_compile": Variant(with_line(DYNAMO + "force_compile_during_fx_trace = True")),
    "always_false": Variant(
        with_line(
            "import torch.fx._symbolic_trace\n"
            "def _never() -> bool:\n    return False\n"
            "torch.fx._symbolic_trace.is_fx_symbolic_tracing = _never\n"
        )
    ),
    "flag_cleared": Variant(cleared()),
    "dense_of_three": Variant(COMPILED_BY_EACH, variables={"TORCHDYNAMO_DISABLE": "1"}),
    "healthy_one": Variant(drafters=1),
    "dense": Variant(COMPILED_BY_EACH, variables={"TORCHDYNAMO_DISABLE": "1"}, drafters=1),
    "recompile_limit": Variant(COMPILED_BY_EACH, {"train.length_buckets": 14, "data.max_tokens": 1024}, drafters=1),
}


def write_data(path: Path, longest: int) -> None:
    """Texts of every length up to `longest` tokens, so that every bucket is met."""
    chance = random.Random(0)
    words = ["".join(chance.choice("abcdefghijklmnop") for _ in range(chance.randint(2, 8))) for _ in range(400)]
    with path.open("w", encoding="utf-8") as stream:
        for _ in range(600):
            count = 8 + int(longest / 3 * chance.random() ** 2)
            stream.write(json.dumps({"text": " ".join(chance.choice(words) for _ in range(count))}) + "\n")


def edited_payload(folder: Path, edits: Edits) -> Path:
    copy = folder / "payload"
    shutil.copytree(PAYLOAD, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in edits.items():
        text = (copy / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name}: {old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        (copy / name).write_text(text, encoding="utf-8")
    return copy


def read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def cache_facts(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "bytes": sum(path.stat().st_size for path in files),
        "files": len(files),
        "graphs": sum(1 for path in folder.glob("fxgraph/*/*") if path.is_dir()),
    }


def gpu_now() -> list[str]:
    asked = "index,memory.used,utilization.gpu,power.draw"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except OSError:
        return []
    return done.stdout.splitlines()


def watch(
    running: subprocess.Popen[bytes], run: Path, most_training_s: float, most_run_s: float
) -> list[dict[str, Any]]:
    """Snapshots: at every change of phase, and every few seconds. Stops it when it has trained long enough."""
    snapshots: list[dict[str, Any]] = []
    began = time.time()
    trained_since: float | None = None
    last: tuple[object, ...] = ()
    taken = 0.0
    while running.poll() is None:
        now = time.time()
        status = read(run / "status.json")
        if status is not None:
            said = (status.get("phase"), status.get("compile_done"))
            if said != last or now - taken >= SNAPSHOT_S:
                snapshots.append({"at_s": round(now - began, 2), "gpus": gpu_now(), "status": status})
                last, taken = said, now
            if status.get("step") and trained_since is None:
                trained_since = now
        if trained_since is not None and now - trained_since > most_training_s:
            running.send_signal(signal.SIGTERM)
            trained_since = float("inf")
        if now - began > most_run_s:
            running.kill()
        time.sleep(0.1)
    status = read(run / "status.json")
    snapshots.append({"at_s": round(time.time() - began, 2), "gpus": gpu_now(), "status": status})
    return snapshots


def record(
    name: str,
    variant: Variant,
    work: Path,
    *,
    most_training_s: float = MOST_TRAINING_S,
    most_run_s: float = MOST_RUN_S,
) -> dict[str, Any]:
    folder = work / name
    run = folder / "run"
    run.mkdir(parents=True)
    payload = edited_payload(folder, variant.edits)
    data = folder / "data.jsonl"
    settings = {**SETTINGS, **variant.settings}
    write_data(data, settings["data.max_tokens"])
    spec = {
        "run_id": name,
        "settings": settings,
        "targets": variant.targets,
        "drafters": variant.drafters,
        "data": str(data),
    }
    (run / "run.json").write_text(json.dumps(spec))
    cache = folder / "cache"
    if variant.cache_of:
        shutil.copytree(work / variant.cache_of / "cache", cache)
    before = cache_facts(cache)
    environment = {
        **os.environ,
        **variant.variables,
        "ORCH_RUN_DIR": str(run),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    began = time.time()
    with (run / "run.log").open("ab") as log:
        argv = [sys.executable, str(payload / "train.py")]
        running = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=payload)
        snapshots = watch(running, run, most_training_s, most_run_s)
    log_bytes = (run / "run.log").read_bytes()
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").is_file() else []
    return {
        "variant": name,
        "folder": str(folder),
        "variables": variant.variables,
        "run": spec,
        "began_at": began,
        "wall_s": round(time.time() - began, 1),
        "exit_code": running.returncode,
        "cache_before": before,
        "cache_after": cache_facts(cache),
        "snapshots": snapshots,
        "runtime": read(run / "runtime.json"),
        "result": read(run / "result.json"),
        "metrics": [json.loads(line) for line in lines],
        "log_bytes": len(log_bytes),
        "log_tail": log_bytes[-LOG_TAIL_BYTES:].decode("utf-8", "replace"),
    }


def trimmed(told: dict[str, Any]) -> dict[str, Any]:
    """What the tests need of it, in some KB: phases, rates, memory, texts; folders are called by what they are."""
    kept: list[dict[str, Any]] = []
    phases = [(one["status"] or {}).get("phase") for one in told["snapshots"]]
    for number, one in enumerate(told["snapshots"]):  # the first and the last of each phase
        if phases[number - 1 : number] != phases[number : number + 1] or phases[number] not in phases[number + 1 :][:1]:
            kept.append(one)
    runtime = dict(told["runtime"] or {})
    data = dict(runtime.get("data") or {})
    data["files"] = [{**file, "samples": file["samples"][:1]} for file in data.get("files", [])]
    metrics = [
        {name: value for name, value in line.items() if not name.startswith("slot_")}
        for line in [*told["metrics"][:3], *told["metrics"][3:][-9:]]
    ]
    lines = [line for line in told["log_tail"].splitlines() if not line.startswith("  ") or " = " not in line]
    record = {
        **{name: told[name] for name in ("variant", "variables", "run", "wall_s", "exit_code")},
        **{name: told[name] for name in ("cache_before", "cache_after", "result")},
        "snapshots": kept,
        "runtime": {**runtime, "data": data},
        "metrics": metrics,
        "log_tail": "\n".join(lines)[-LOG_TAIL_BYTES:] + "\n",
    }
    text = json.dumps(record, sort_keys=True)
    text = text.replace(f"{told['folder']}/payload", "/root/payload").replace(told["folder"], "/root/run")
    cleaned: dict[str, Any] = json.loads(text)
    return cleaned


def main() -> None:
    out, *names = sys.argv[1:]
    work = Path(tempfile.mkdtemp(prefix="record-"))
    for name in names:
        told = record(name, VARIANTS[name], work)
        (Path(out) / f"{name}.json").write_text(json.dumps(trimmed(told), separators=(",", ":")) + "\n")
        rates = [line["tokens_per_s"] for line in told["metrics"]]
        print(
            f"{name}: {told['wall_s']} s, exit {told['exit_code']}, {rates[-3:]}", told["log_tail"][-300:], flush=True
        )


if __name__ == "__main__":
    main()
