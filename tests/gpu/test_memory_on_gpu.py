"""What --plan says of a drafter's memory, against the peak that CUDA saw in a step."""

from __future__ import annotations

import gc
import json
from types import SimpleNamespace

import pytest
import torch
from config import load_config
from drafter import Drafter, DrafterShape
from forward import Ends, step_loss
from optimise import Optimisation
from plan import compile_plan
from preview import memory_bytes
from warmup import made_up_batch

VOCABULARY = 32_000
SHAPES = {
    "long context": (DrafterShape(2048, 6144, 3, 16, 8, 128, 3, 1e6, 1e-6), 32_768, 256),
    "many blocks": (DrafterShape(1024, 3072, 5, 16, 8, 128, 5, 1e6, 1e-6), 4096, 1024),
}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_estimate_is_near_the_peak(name: str, recompute: bool) -> None:
    shape, longest, anchors = SHAPES[name]
    settings = {"train.batch": 1, "train.anchors": anchors, "block_size": 16, "text.tokens": longest}
    config = load_config({**settings, "train.recompute": recompute, "train.loss_chunk_blocks": 128})
    gc.collect()
    torch.cuda.empty_cache()
    begun_with = torch.cuda.memory_allocated()
    size, head = shape.hidden_size, torch.nn.Linear(shape.hidden_size, VOCABULARY, bias=False)
    ends = Ends(torch.nn.Embedding(VOCABULARY, size).bfloat16().cuda(), head.bfloat16().cuda())
    for end in (ends.embed, ends.to_logits):
        end.requires_grad_(False)
    drafter = Drafter(shape, seed=0).cuda()
    drafter.recompute = recompute
    optimisation = Optimisation(drafter, config)
    (item,) = compile_plan(config, longest, ["cuda:0"]).items
    batch = made_up_batch(item, drafter, ends, config)
    seen = {}
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        outcome = step_loss(batch, ends, drafter, 1, config)
        seen["after forward"] = torch.cuda.memory_allocated() - begun_with
        optimisation.accumulate(outcome.loss)
        seen["peak of forward and backward"] = torch.cuda.max_memory_allocated() - begun_with
        del outcome
        optimisation.step()
        seen["between steps"] = torch.cuda.memory_allocated() - begun_with
        seen["peak"] = torch.cuda.max_memory_allocated() - begun_with
    target = SimpleNamespace(vocab_size=VOCABULARY, intermediate_size=1)
    parts = memory_bytes(config, shape, 0, target, longest=longest, on_cuda=True)["drafter"]
    estimate = sum(parts.values())
    in_mib = {name: round(bytes_ / 2**20) for name, bytes_ in {**seen, **parts, "estimate": estimate}.items()}
    print("\nmemory", name, f"recompute={recompute}", json.dumps(in_mib))
    assert 0.85 <= estimate / seen["peak"] <= 1.18, in_mib
