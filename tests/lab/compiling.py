"""A small training of torch's true CPU compiler, as a payload: what it compiles costs a real C++ compiler some seconds.

python compiling.py            two shapes with gradients, one step each
python compiling.py warm       compiles both, and ends
python compiling.py trap       one kernel at one shape, forward only: what people took for a warm-up
"""

import json
import os
import sys
import time

BEGAN = time.time()

import torch  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

IMPORTED = time.time()
PLAN = {"graphs": {"cpu": 4}}
"""Two shapes, forward and backward."""


def write(name, record):
    path = os.path.join(os.environ["ORCH_RUN_DIR"], name)
    with open(path + ".new", "w") as stream:
        json.dump(record, stream)
    os.replace(path + ".new", path)


def told(phase, step):
    def counted(group, name):
        return counters[group][name]

    compiled = {
        "cache_hits": counted("inductor", "fxgraph_cache_hit"),
        "cache_misses": counted("inductor", "fxgraph_cache_miss"),
        "aot_cache_hits": counted("aot_autograd", "autograd_cache_hit"),
        "aot_cache_misses": counted("aot_autograd", "autograd_cache_miss"),
    }
    write("status.json", {"phase": phase, "step": step, "compiled": compiled, "updated_at": time.time()})


def main(words):
    torch.set_num_threads(1)
    weight = torch.ones(8, 8, requires_grad=True)

    @torch.compile(dynamic=False)
    def layer(rows):
        return torch.sin(rows @ weight).sum()

    loaded = time.time()
    if words == ["trap"]:
        with torch.no_grad():
            layer(torch.ones(2, 8))
        told("done", None)
        return
    write("runtime.json", {"compile_plan": PLAN})
    for step, rows in enumerate((2, 3), 1):
        layer(torch.ones(rows, 8)).backward()
        if step == 1:
            bare = time.time() - loaded
            first = {"total_s": time.time() - BEGAN, "imports_s": IMPORTED - BEGAN, "without_imports_and_load_s": bare}
            write("runtime.json", {"compile_plan": PLAN, "first_step": first})
        told("training", None if words else step)
        print(f"step {step} loss 1.0", flush=True)
    told("done", None if words else 2)


main(sys.argv[1:])
