"""`train.py --plan`: what a run would use and be, without running it.

Rule: nothing is loaded, compiled or written. Sizes of weights are exact; activations are estimates, and called so.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Tuple

import contract
import torch
from config import Config, ConfigError
from devices import choose_engine, place
from drafter import DrafterShape
from export import expected_tensors
from plan import compile_plan
from target import Target, new_model
from transformers import AutoConfig, AutoModelForCausalLM

GIB = 2**30


def preview(config: Config, spec: contract.RunSpec) -> List[str]:
    """Lines for a person. Raises ConfigError, DeviceError, TargetError, OSError."""
    placement = place(config.device, targets=spec.targets, drafters=spec.drafters)
    on_cuda = placement.device.type == "cuda"
    target, parameters = describe_target(config, spec.model)
    shape = target.drafter_shape(intermediate_size=config.drafter.intermediate_size, check=False)
    start = config.drafter.start_from
    if start and not Path(start).is_dir():
        raise ConfigError(f"drafter.start_from: no folder {start}")
    longest = config.text.tokens if spec.data is None else config.data.max_tokens
    queries = config.train.anchors * config.block_size
    engine = choose_engine(config.engine, placement)
    how_many = len(placement.targets) + len(placement.drafters)
    lines = [
        placement.note,
        f"engine: {engine}, " + (f"{how_many} processes" if engine == "processes" else "all in one process"),
        f"target: {parameters:,} parameters, {'from ' + spec.model if spec.model else 'made and trained here'}",
        f"drafter: {drafter_parameters(shape):,} parameters, {shape.layers} layers, reads layers {target.layer_ids}"
        + (f", starts from {start}" if start else ""),
        f"data: {spec.data or 'text made here'}, rows up to {longest} tokens"
        + (", several documents in each" if config.train.pack else ", a document each"),
        f"a batch: {config.train.batch} rows x {longest} context tokens, {config.train.anchors} blocks of "
        f"{config.block_size} = {queries} queries over {longest + queries} keys a row",
        f"a step: {config.train.accumulation * len(placement.drafters)} batches; {config.steps} steps",
    ]
    devices = placement.drafters[:1] if engine == "processes" else placement.drafters
    items = compile_plan(config, longest, [str(device) for device in devices]).items
    lines.append(f"to compile, one after the other: {len(items) or 'nothing'}")
    lines += [f"  {item}" for item in items]
    if items and engine == "processes" and len(placement.drafters) > 1:
        lines.append("  by the first drafter; the others, for whom their own GPU is cuda:0 too, find it in the cache")
    sizes = memory_bytes(config, shape, parameters, target.config, longest=longest, on_cuda=on_cuda)
    for role, parts in sizes.items():
        listed = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
        lines.append(f"memory of a {role}, about {size_text(sum(parts.values()))}: {listed}")
    lines.append(
        f"waiting between them: at most {size_text(int(config.queue.max_mib * 2**20) * len(placement.drafters))}"
    )
    return lines


def size_text(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / 2**20:.1f} MiB"


def describe_target(config: Config, model: str | None) -> Tuple[Target, int]:
    """Without its weights, and how many there are."""
    with torch.device("meta"):
        if model is None:
            made = new_model(config.target, config.text.vocabulary, config.seed)
        elif Path(model).is_dir():
            made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model, local_files_only=True))
        else:
            raise ConfigError(f"model: no folder {model}")
    return Target(made, config.drafter.layers), sum(one.numel() for one in made.parameters())


def drafter_parameters(shape: DrafterShape) -> int:
    return sum(math.prod(size) for size in expected_tensors(shape).values())


def memory_bytes(
    config: Config, shape: DrafterShape, target_parameters: int, target: Any, *, longest: int, on_cuda: bool
) -> Dict[str, Dict[str, int]]:
    """Role -> part -> bytes. On a GPU numbers that are only passed on are bfloat16, what is learned is float32.

    Counted from what the backward pass needs of drafter.py and loss.py; held against a GPU's own peak by
    tests/gpu/test_memory_on_gpu.py.
    """
    width = 2 if on_cuda else 4
    rows, hidden, middle = config.train.batch, shape.hidden_size, shape.intermediate_size
    queries, heads = rows * config.train.anchors * config.block_size, shape.heads * shape.head_size
    context, pair = rows * longest, shape.kv_heads * shape.head_size
    features = context * shape.selected_layers * hidden * width
    learned = drafter_parameters(shape)
    # Of a layer, a query: both norms' input and normed states, what goes into five projections; queries, normed and
    # turned; what the MLP multiplies. And keys and values, of context and blocks side by side.
    of_a_layer = queries * (16 * hidden + 5 * width * hidden + (4 + 4 * width) * heads + 4 * width * middle)
    of_a_layer += (context + queries) * 2 * pair * width
    # The context's keys and values exist for all layers at once, and their gradients do, too.
    of_context = shape.layers * context * (2 * width * hidden + (8 + 4 * width) * pair) + context * 6 * hidden
    around = of_context + queries * 12 * hidden
    chunk = min(config.train.loss_chunk_blocks * (config.block_size - 1), queries)
    logits = chunk * target.vocab_size * (2 * width + 12)
    if config.train.recompute:
        kept = {
            "activations": around + shape.layers * queries * hidden * 4,
            "one layer again, or logits": max(of_a_layer, logits),
        }
    else:
        kept = {"activations": around + shape.layers * of_a_layer, "logits": logits}
    return {
        "drafter": {
            # Gradients grow while activations go; on a GPU the forward pass has a bfloat16 copy of the weights.
            "weights, gradients and optimizer": (14 if on_cuda else 16) * learned,
            "the target's embedding and head": 2 * target.vocab_size * hidden * width,
            "a batch's hidden states": features,
            **kept,
        },
        "target": {
            "weights": target_parameters * width,
            "hidden states": features,
            "activations": context * (8 * hidden + 3 * target.intermediate_size) * width
            # Packed, the target's attention needs a mask: bool, and as it is added to the scores.
            + (context * longest * (1 + width) if config.train.pack else 0),
        },
    }
