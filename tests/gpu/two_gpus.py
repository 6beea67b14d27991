"""One process a device on two GPUs, measured: each part prints a JSON line as soon as it knows something.

    python two_gpus.py FOLDER [--tiny] PART ...

    model    makes a random model of 8B's size in FOLDER, which `real` needs
    trainer  train.py with one target and one drafter, engines processes and threads: the same losses?
    warmup   two drafters, cold cache: one compiles, the other finds it; steps and averages at the real size
    handoff  hidden states of one sequence, from one device to the other
    real     train.py, 1 + 1, at the real size; then its target is killed

--tiny: everything small, on a CPU with gloo, to try the script out. FOLDER keeps the compile cache, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAYLOAD = HERE.parents[1] / "remote_payload"
sys.path[:0] = [str(PAYLOAD), str(HERE.parent / "payload")]

import contract  # noqa: E402
from ranks import environment_of, ranks_of  # noqa: E402

DEADLINE_S = 280
STEPS = 14
"""Of the real trainer before its target is killed."""
SAMPLES = 24
SIZES: dict[bool, dict[str, int]] = {
    False: {
        "vocabulary": 151_936,
        "hidden": 4096,
        "intermediate": 12_288,
        "layers": 36,
        "heads": 32,
        "kv_heads": 8,
        "head": 128,
        "context": 40_000,
        "anchors": 2048,
        "width": 16,
        "drafter_layers": 5,
        "queue_mib": 4096,
    },
    True: {
        "vocabulary": 400,
        "hidden": 32,
        "intermediate": 64,
        "layers": 9,
        "heads": 2,
        "kv_heads": 1,
        "head": 16,
        "context": 96,
        "anchors": 8,
        "width": 8,
        "drafter_layers": 5,
        "queue_mib": 1,
    },
}


def say(part: str, **facts: Any) -> None:
    print(json.dumps({"part": part, **facts}), flush=True)


def settings(tiny: bool) -> dict[str, Any]:
    size = SIZES[tiny]
    return {
        "device": "cpu" if tiny else "cuda",
        "engine": "processes",
        "steps": 1000,
        "block_size": size["width"],
        "data.max_tokens": size["context"],
        "data.held_out_every": 2,
        "drafter.layers": size["drafter_layers"],
        "drafter.intermediate_size": size["intermediate"],
        "train.batch": 1,
        "train.anchors": size["anchors"],
        "train.recompute": True,
        "train.learning_rate": 1e-4,
        "train.loss_chunk_blocks": 128,
        "queue.max_mib": size["queue_mib"],
        "checkpoint.every_steps": 1000,
        "log.every_steps": 1,
        "compile.strict": True,
    }


def environment(folder: Path) -> dict[str, str]:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TRITON_CACHE_DIR": str(folder / "triton")}
    return {**os.environ, **caches, "PYTHONUNBUFFERED": "1"}


# What runs in processes of its own


def make_model(folder: Path, tiny: bool) -> None:
    import torch
    from tokens import train_vocabulary
    from transformers import Qwen3Config, Qwen3ForCausalLM

    size = SIZES[tiny]
    began = time.monotonic()
    device, dtype = ("cpu", torch.float32) if tiny else ("cuda:0", torch.bfloat16)
    config = Qwen3Config(
        vocab_size=size["vocabulary"],
        hidden_size=size["hidden"],
        intermediate_size=size["intermediate"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        head_dim=size["head"],
        max_position_embeddings=65_536,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(str(folder / "model"))
    train_vocabulary(["some text to make a tokenizer of"], 300).save(folder / "model")
    say("model", parameters=sum(one.numel() for one in model.parameters()), seconds=round(time.monotonic() - began, 1))


def two_drafters(folder: Path, tiny: bool, number: int) -> None:
    """Compiles in turn as the trainer does, then takes steps."""
    import torch
    from config import load_config
    from drafter import Drafter, DrafterShape
    from forward import Ends, step_loss
    from links import Member
    from plan import CompileItem, compile_plan
    from progress import Progress
    from rank_crew import RankCrew
    from sealing import Seal
    from stopping import StopRequest
    from warmup import compile_all, made_up_batch
    from workers import Replica

    size = SIZES[tiny]
    ranks = ranks_of(0, 2, on_gpus=not tiny)
    member = Member(ranks[number], ranks, folder)
    device = member.device
    config = load_config(settings(tiny))
    shape = DrafterShape(
        size["hidden"],
        size["intermediate"],
        size["drafter_layers"],
        size["heads"],
        size["kv_heads"],
        size["head"],
        size["drafter_layers"],
        1e6,
        1e-6,
    )
    dtype = torch.float32 if tiny else torch.bfloat16
    with torch.device(device):
        ends = Ends(
            torch.nn.Embedding(size["vocabulary"], size["hidden"], dtype=dtype).requires_grad_(False),
            torch.nn.Linear(size["hidden"], size["vocabulary"], bias=False, dtype=dtype).requires_grad_(False),
        )
    drafter = Drafter(shape, seed=0).to(device)
    drafter.recompute = True
    replica = Replica(number, drafter, ends, 1, config)
    links = member.join()
    crew = RankCrew(replica, links, 1, StopRequest())
    plan = compile_plan(config, size["context"], [str(device)])
    took: list[float] = []

    def compile_own() -> None:
        began = time.monotonic()
        compile_all(plan, {str(device): drafter}, {str(device): ends}, 1, config, lambda number, item: None)
        took.append(time.monotonic() - began)

    crew.compile_in_turn(compile_own, Progress(folder))
    seal = Seal(strict=True)
    seal.close()
    say("warmup", drafter=number, seconds=round(took[0], 1), **vars(seal.counts()))

    item = CompileItem(str(device), 1, size["context"], size["anchors"] * size["width"], grad=True)
    assert tiny or plan.items == (item,)
    batch = made_up_batch(item, drafter, ends, config)
    times: dict[str, list[float]] = {"learn": [], "average": [], "optimise": []}

    def timed(name: str, work: Any) -> None:
        began = time.monotonic()
        work()
        if not tiny:
            torch.cuda.synchronize()
        times[name].append(time.monotonic() - began)

    for _ in range(6):
        timed("learn", lambda: replica.optimisation.accumulate(step_loss(batch, ends, drafter, 1, config).loss))
        crew.gather(None)
        timed("average", crew.average_gradients)
        timed("optimise", replica.optimisation.step)
    crew.check_equal(6)
    facts = {f"{name}_s": round(sorted(spent)[len(spent) // 2], 4) for name, spent in times.items()}
    peak = None if tiny else round(torch.cuda.max_memory_allocated() / 2**30, 1)
    gradients_gb = sum(one.numel() for one in drafter.parameters()) * 4 / 1e9
    say("steps", drafter=number, **facts, gradients_gb=round(gradients_gb, 2), peak_gib=peak, recompiled=seal.look())
    links.close()


def hand_over(folder: Path, tiny: bool, number: int) -> None:
    import torch
    from links import Member

    size = SIZES[tiny]
    ranks = ranks_of(1, 1, on_gpus=not tiny)
    member = Member(ranks[number], ranks, folder)
    links = member.join()
    states = torch.full(
        (1, size["context"], size["drafter_layers"] * size["hidden"]),
        float(1 - number),
        dtype=torch.float32 if tiny else torch.bfloat16,
        device=member.device,
    )
    took = []
    for turn in range(8):
        links.wait_for_all()
        began = time.monotonic()
        if number == 0:
            links.offer(0, [turn, 0])
            links.answer(0)
            links.send(0, states)
        else:
            links.await_offer(0, 2)
            links.give_answer(0, 1)
            links.receive(0, states)
        links.finish_device()
        took.append((time.monotonic() - began) * 1e3)
    if number == 1:
        assert bool((states == 1).all()), "other states arrived than were sent"
        middle = sorted(took[1:])[3]
        gb = states.nbytes / 1e9
        say(
            "handoff",
            gb=round(gb, 3),
            first_ms=round(took[0], 1),
            median_ms=round(middle, 2),
            gb_per_s=round(gb / middle * 1e3),
        )
    links.close()


CHILDREN = {"warmup": two_drafters, "handoff": hand_over}


# The parts


def both(part: str, folder: Path, tiny: bool) -> None:
    """A process for each of two ranks."""
    job = folder / f"job-{part}"
    job.mkdir(parents=True)
    ranks = ranks_of(0, 2, on_gpus=not tiny)
    words = [str(Path(__file__)), str(job), *(["--tiny"] if tiny else []), f"--child={part}"]
    running = [
        subprocess.Popen([sys.executable, *words, str(rank.number)], env=environment_of(rank, environment(folder)))
        for rank in ranks
    ]
    try:
        codes = [child.wait(DEADLINE_S) for child in running]
    finally:
        for child in running:
            child.kill()
            child.wait()
    say(part, exit_codes=codes)


def run_folder(folder: Path, name: str, **spec: Any) -> Path:
    run = folder / name
    run.mkdir()
    contract.write_json(run / contract.RUN_SPEC, contract.RunSpec(run_id=name, **spec))
    return run


def start_trainer(run: Path, folder: Path) -> subprocess.Popen[bytes]:
    with (run / contract.RUN_LOG).open("wb") as log:
        made = {**environment(folder), contract.RUN_DIR_VARIABLE: str(run)}
        argv = [sys.executable, str(PAYLOAD / "train.py")]
        return subprocess.Popen(argv, env=made, stdout=log, stderr=subprocess.STDOUT)


def metrics(run: Path) -> list[dict[str, Any]]:
    path = run / contract.METRICS
    lines = path.read_text().splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def end_of_log(run: Path) -> str:
    return (run / contract.RUN_LOG).read_text()[-1500:]


def small_trainer(folder: Path, tiny: bool, engine: str) -> None:
    from tiny import TINY

    changes = {"device": "cpu" if tiny else "cuda", "steps": 20, "target.head_size": 16, "train.length_buckets": 2}
    run = run_folder(
        folder, f"small-{engine}", settings={**TINY, **changes, "engine": engine, "compile.strict": True}, drafters=1
    )
    began = time.monotonic()
    process = start_trainer(run, folder)
    try:
        code = process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    status = json.loads((run / contract.STATUS).read_text())
    losses = [round(line["loss"], 4) for line in metrics(run)]
    say(
        "trainer",
        engine=engine,
        code=code,
        seconds=round(time.monotonic() - began, 1),
        losses=losses,
        compiled=status.get("compiled"),
        engine_recorded=json.loads((run / contract.RUNTIME).read_text()).get("engine"),
    )
    if code:
        say("trainer", engine=engine, log=end_of_log(run))


def write_data(folder: Path, tiny: bool) -> Path:
    """Long rows to train on, and short ones, every second, that are held out."""
    chance, size = random.Random(0), SIZES[tiny]
    path = folder / "data.jsonl"
    with path.open("w") as stream:
        for number in range(SAMPLES):
            length = size["context"] if number % 2 == 0 else 64
            ids = [chance.randrange(2, size["vocabulary"]) for _ in range(length)]
            stream.write(json.dumps({"input_ids": ids}) + "\n")
    return path


def real_trainer(folder: Path, tiny: bool) -> None:
    data = write_data(folder, tiny)
    run = run_folder(folder, "real", settings=settings(tiny), data=str(data), model=str(folder / "model"))
    began = time.monotonic()
    process = start_trainer(run, folder)
    told = 0
    try:
        while told < STEPS and process.poll() is None and time.monotonic() - began < DEADLINE_S:
            for line in metrics(run)[told:]:
                told += 1
                kept = ("step", "loss", "tokens_per_s", "drafter_wait_share", "target_wait_share", "peak_memory_mib")
                phases = {name: round(value, 4) for name, value in line.items() if name.startswith("phase_s/")}
                counts = {name: line[name] for name in ("compiles", "cache_hits", "cache_misses") if name in line}
                since = round(time.monotonic() - began, 1)
                say("real", since_start_s=since, **{name: line[name] for name in kept}, **phases, **counts)
            time.sleep(0.2)
        say("real", steps=told, ended_by_itself=process.poll())
        facts = json.loads((run / contract.RUNTIME).read_text())
        (target,) = (one for one in facts.get("ranks", []) if one["role"] == "target")
        os.kill(target["pid"], signal.SIGKILL)
        killed_at = time.monotonic()
        code = process.wait(60)
        detail = json.loads((run / contract.STATUS).read_text())["detail"]
        say(
            "real", killed="target", code=code, seconds_to_the_end=round(time.monotonic() - killed_at, 2), detail=detail
        )
    finally:
        process.kill()
        process.wait()
        print(end_of_log(run), flush=True)


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    tiny = "--tiny" in sys.argv
    folder, parts = Path(words[0]), words[1:]
    child = next((word.partition("=")[2] for word in sys.argv if word.startswith("--child=")), None)
    if child == "model":
        make_model(folder, tiny)
        return
    if child is not None:
        CHILDREN[child](folder, tiny, int(parts[0]))
        return
    folder.mkdir(parents=True, exist_ok=True)

    def tried(part: str, work: Any, *words: Any, **named: Any) -> None:
        """One part that goes wrong takes none of the others with it: the machine is there once."""
        try:
            work(*words, **named)
        except Exception as error:
            say(part, went_wrong=f"{type(error).__name__}: {error}"[:600])

    with ThreadPoolExecutor(3) as pool:
        waiting = []
        if "model" in parts:
            argv = [sys.executable, str(Path(__file__)), str(folder), *(["--tiny"] if tiny else []), "--child=model"]
            one = pool.submit(
                tried, "model", subprocess.run, argv, env=environment(folder), timeout=DEADLINE_S, check=True
            )
            waiting.append(one)
        if "trainer" in parts:
            waiting += [
                pool.submit(tried, "trainer", small_trainer, folder, tiny, engine)
                for engine in ("processes", "threads")
            ]
        for one in waiting:
            one.result()
    for part in ("warmup", "handoff"):
        if part in parts:
            tried(part, both, part, folder, tiny)
    if "real" in parts:
        tried("real", real_trainer, folder, tiny)


if __name__ == "__main__":
    main()
