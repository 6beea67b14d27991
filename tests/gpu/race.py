"""Several drafters of one process meet new shapes at once, with a cold compile cache: one JSON line says what happened.

    python race.py              compiled on one thread first, guarded, sealed: as the trainer does it
    python race.py --unguarded  as it was: every thread compiles what it meets

One GPU stands in for several: each drafter has its own number of heads, which torch tells apart as it does devices.
Every thread waits a little at random before a step while shapes are new, as a drafter waits for its data.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

UNGUARDED = "--unguarded" in sys.argv
CACHE = tempfile.mkdtemp(prefix="race-cache-")
os.environ.update(TORCHINDUCTOR_CACHE_DIR=CACHE, TRITON_CACHE_DIR=f"{CACHE}/triton", TORCHINDUCTOR_COMPILE_THREADS="2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "remote_payload"))

import fx_guard  # noqa: E402
import torch  # noqa: E402
from config import Config, load_config  # noqa: E402
from drafter import Drafter, DrafterShape  # noqa: E402
from forward import Ends, step_loss  # noqa: E402
from plan import CompileItem, compile_plan  # noqa: E402
from sealing import Seal, set_recompile_limit  # noqa: E402
from warmup import compile_all, made_up_batch  # noqa: E402

DEVICE = "cuda:0"
DRAFTERS, TARGETS = 3, 2
HIDDEN, HEAD, VOCABULARY = 256, 64, 512
PASSES, STEADY_STEPS = 2, 60
MOST_WAIT_S = 0.06
MOST_RUN_S = float(os.environ.get("RACE_MOST_RUN_S", "180"))
SETTINGS = {
    "text.tokens": 1536,
    "train.length_buckets": 3,
    "train.anchors": 32,
    "train.batch": 1,
    "block_size": 16,
    "drafter.layers": 2,
}


class Races:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.plan = compile_plan(config, config.text.tokens, [DEVICE])
        self.ends = Ends(
            torch.nn.Embedding(VOCABULARY, HIDDEN).to(DEVICE), torch.nn.Linear(HIDDEN, VOCABULARY).to(DEVICE)
        )
        self.drafters = [self.drafter(2 + 2 * number) for number in range(DRAFTERS)]
        self.steps = self.steady_steps = 0
        self.began_steady = 0.0
        self.errors: dict[str, int] = {}
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.start_together = threading.Barrier(DRAFTERS)

    def drafter(self, heads: int) -> Drafter:
        layers = self.config.drafter.layers
        shape = DrafterShape(HIDDEN, 512, layers, heads, 2, HEAD, layers, 10000.0, 1e-6)
        return Drafter(shape, seed=heads).to(DEVICE)

    def step(self, drafter: Drafter, item: CompileItem) -> None:
        batch = made_up_batch(item, drafter, self.ends, self.config)
        step_loss(batch, self.ends, drafter, 1, self.config).loss.backward()
        drafter.zero_grad(set_to_none=True)

    def note(self, error: BaseException) -> None:
        cause = error.__cause__ or error
        text = f"{type(error).__name__}: {str(cause).strip().partition(chr(10))[0][:90]}"
        with self.lock:
            self.errors[text] = self.errors.get(text, 0) + 1

    def draft(self, number: int) -> None:
        chance = random.Random(number)
        drafter = self.drafters[number]
        items = list(self.plan.items)
        fresh = [item for _ in range(PASSES) for item in chance.sample(items, len(items))]
        for new, todo in ((True, fresh), (False, [items[i % len(items)] for i in range(STEADY_STEPS)])):
            self.start_together.wait()
            if not new and number == 0:
                self.began_steady = time.monotonic()
            for item in todo:
                if new:
                    time.sleep(chance.random() * MOST_WAIT_S)
                try:
                    self.step(drafter, item)
                    with self.lock:
                        self.steps += 1
                        self.steady_steps += not new
                except Exception as error:
                    drafter.zero_grad(set_to_none=True)
                    self.note(error)
        torch.cuda.synchronize()

    def be_target(self) -> None:
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]).to(DEVICE)
        states = torch.randn(8, 64, device=DEVICE)
        with torch.no_grad():
            while not self.over.is_set():
                try:
                    assert isinstance(model(states), torch.Tensor)
                except Exception as error:
                    self.note(error)
                time.sleep(0.0005)

    def run(self) -> None:
        targets = [threading.Thread(target=self.be_target, daemon=True) for _ in range(TARGETS)]
        drafters = [threading.Thread(target=self.draft, args=(n,), name=f"drafter-{n}") for n in range(DRAFTERS)]
        for thread in [*targets, *drafters]:
            thread.start()
        for thread in drafters:
            thread.join()
        self.over.set()
        for thread in targets:
            thread.join()


def report(races: Races, seal: Seal, began: float, compiled_s: float, hung: bool) -> None:
    seal.look()
    counts = seal.counts()
    steady_s = time.monotonic() - races.began_steady if races.began_steady else None
    outcome = {
        "guarded": fx_guard.installed(),
        "torch": torch.__version__,
        "steps": races.steps,
        "wanted_steps": DRAFTERS * (PASSES * len(races.plan.items) + STEADY_STEPS),
        "hung": hung,
        "errors": races.errors,
        "fallbacks": counts.fallbacks,
        "compiles": counts.compiles,
        "recompiles": counts.recompiles,
        "cache_misses": counts.cache_misses,
        "flag_is_stuck": fx_guard.flag_is_stuck(),
        "compiled_first_s": round(compiled_s, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "steady_steps_per_s": round(races.steady_steps / steady_s, 1) if steady_s else None,
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }
    print(json.dumps(outcome), flush=True)
    # A stuck tracing state can keep the interpreter from ending in order, and a hung thread does.
    os._exit(0)


def main() -> None:
    races = Races(load_config(SETTINGS))
    began = time.monotonic()
    if UNGUARDED:
        set_recompile_limit(1000)
    else:
        for drafter in races.drafters:
            compile_all(races.plan, {DEVICE: drafter}, {DEVICE: races.ends}, 1, races.config, lambda number, item: None)
        set_recompile_limit(races.plan.recompile_limit * DRAFTERS)
    compiled_s = time.monotonic() - began
    seal = Seal(strict=False)
    seal.close()
    running = threading.Thread(target=races.run, daemon=True)
    running.start()
    running.join(MOST_RUN_S)
    report(races, seal, began, compiled_s, hung=running.is_alive())


if __name__ == "__main__":
    main()
