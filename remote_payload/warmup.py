"""Compiles everything the plan names, on the thread that calls it, before any worker starts.

Rule: leaves no trace but the compiled code: no gradient, no random number, no changed weight.
"""

from __future__ import annotations

from typing import Callable, Dict

import fx_guard
import torch
from attention import use_dynamic_shapes
from config import Config
from drafter import Drafter
from feed import Batch
from forward import Ends, step_loss
from plan import CompileItem, CompilePlan
from sealing import set_recompile_limit


def compile_all(
    plan: CompilePlan,
    drafters: Dict[str, Drafter],
    ends: Dict[str, Ends],
    mask_id: int,
    config: Config,
    on_item: Callable[[int, CompileItem], None],
) -> None:
    """drafters and ends: one for each device of the plan. on_item hears of each before it is compiled, from 1."""
    if not plan.items:
        return
    fx_guard.install()
    set_recompile_limit(plan.recompile_limit)
    if plan.dynamic:
        use_dynamic_shapes()
    for number, item in enumerate(plan.items, start=1):
        on_item(number, item)
        drafter = drafters[item.device]
        batch = made_up_batch(item, drafter, ends[item.device], config)
        with torch.set_grad_enabled(item.grad):
            outcome = step_loss(batch, ends[item.device], drafter, mask_id, config)
        if item.grad:
            outcome.loss.backward()
        drafter.zero_grad(set_to_none=True)
        torch.cuda.synchronize(item.device)


def made_up_batch(item: CompileItem, drafter: Drafter, ends: Ends, config: Config) -> Batch:
    device = torch.device(item.device)
    shape = drafter.shape
    tokens = torch.zeros(item.rows, item.context, dtype=torch.int64, device=device)
    anchors = torch.linspace(0, item.context - 1, config.train.anchors, device=device).long().expand(item.rows, -1)
    width = shape.selected_layers * shape.hidden_size
    return Batch(
        step=0,
        rows=[],
        token_count=0,
        tokens=tokens,
        document=torch.zeros_like(tokens),
        learned=torch.ones_like(tokens, dtype=torch.bool),
        anchors=anchors.contiguous(),
        kept=torch.ones(item.rows, config.train.anchors, dtype=torch.bool, device=device),
        features=torch.zeros(item.rows, item.context, width, dtype=ends.embed.weight.dtype, device=device),
    )
