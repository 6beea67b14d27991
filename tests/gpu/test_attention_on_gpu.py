"""Must show: the compiled kernel against the slow reference, and a drafter that learns what it sees."""

from __future__ import annotations

import pytest
import torch
from attention import Layout, attend, dense_mask, tile_mask
from config import load_config
from drafter import Drafter, DrafterShape
from forward import Ends, step_loss
from plan import compile_plan
from warmup import made_up_batch

DEVICE = "cuda"


def random_layout(rows: int, context: int, blocks: int, width: int, seed: int) -> Layout:
    chance = torch.Generator().manual_seed(seed)
    anchors = torch.randint(0, context, (rows, blocks), generator=chance).sort(dim=1).values
    starts = (anchors * torch.rand(rows, blocks, generator=chance)).long()
    kept = torch.rand(rows, blocks, generator=chance) > 0.2
    return Layout(anchors.to(DEVICE), starts.to(DEVICE), kept.to(DEVICE), context, width)


def attention_and_gradients(query, key, value, mask, mixed_gradient):
    leaves = [part.detach().clone().requires_grad_() for part in (query, key, value)]
    mixed = attend(*leaves, mask)
    mixed.backward(mixed_gradient.to(mixed.dtype))
    return [mixed, *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize(
    ("rows", "context", "blocks", "width", "heads", "kv_heads", "size"),
    [(2, 700, 20, 16, 4, 2, 64), (1, 1024, 64, 16, 8, 8, 128), (2, 100, 5, 10, 4, 1, 32), (1, 96, 16, 8, 4, 2, 16)],
)
def test_the_kernel_agrees_with_the_reference_forward_and_backward(rows, context, blocks, width, heads, kv_heads, size):
    layout = random_layout(rows, context, blocks, width, seed=context)
    torch.manual_seed(0)
    queries = blocks * width
    query, gradient = (torch.randn(rows, heads, queries, size, device=DEVICE) for _ in range(2))
    key, value = (torch.randn(rows, kv_heads, context + queries, size, device=DEVICE) for _ in range(2))
    # What a dropped block's queries come to is asked of the tiles alone: SDPA leaves something there.
    seen = layout.kept.repeat_interleave(width, dim=1)[:, None, :, None].expand_as(query)
    gradient = gradient * seen
    exact = attention_and_gradients(query, key, value, dense_mask(layout), gradient)
    short = [part.bfloat16() for part in (query, key, value)]
    by_sdpa = attention_and_gradients(*short, dense_mask(layout), gradient)
    by_tiles = attention_and_gradients(*short, tile_mask(layout), gradient)
    for name, true, reference, tiled in zip(("out", "dq", "dk", "dv"), exact, by_sdpa, by_tiles, strict=True):
        assert tiled.isfinite().all(), name
        asked = seen if name in ("out", "dq") else torch.ones_like(true, dtype=torch.bool)
        rounding = (reference.float() - true)[asked].abs().max()
        error = (tiled.float() - true)[asked].abs().max()
        assert error <= 2 * rounding + 1e-3, f"{name}: off by {error:.4f}, bfloat16 itself by {rounding:.4f}"
        print(f"{context}+{queries} {name}: tiles off by {error:.5f}, dense bfloat16 by {rounding:.5f}")
    assert not by_tiles[0][~seen].any()


def test_a_drafter_learns_one_batch_by_heart():
    config = load_config({"text.tokens": 256, "train.anchors": 16, "train.batch": 2, "drafter.layers": 2})
    torch.manual_seed(0)
    ends = Ends(torch.nn.Embedding(97, 128).to(DEVICE), torch.nn.Linear(128, 97, bias=False).to(DEVICE))
    drafter = Drafter(DrafterShape(128, 256, 2, 4, 2, 32, 2, 10000.0, 1e-6), seed=0).to(DEVICE)
    (item,) = compile_plan(config, config.text.tokens, ["cuda:0"]).items
    batch = made_up_batch(item, drafter, ends, config)
    batch.tokens.copy_(torch.randint(2, 97, batch.tokens.shape))
    batch.features.copy_(torch.randn_like(batch.features))
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=2e-3)
    losses = []
    for _ in range(300):
        outcome = step_loss(batch, ends, drafter, 1, config)
        outcome.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(outcome.loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}, accuracy {float(outcome.accuracy):.3f}")
    assert losses[0] > 4
    assert losses[-1] < 0.05
    assert float(outcome.accuracy) > 0.99


def test_the_mask_of_the_real_shape_is_small_and_quick():
    """40,000 tokens of context and 2,048 blocks of 16: torch's own way needs 2.4 GB and more for it."""
    layout = random_layout(1, 40_000, 2048, 16, seed=0)
    tile_mask(layout)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    mask = tile_mask(layout)
    end.record()
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    print(f"mask of 32,768 x 72,768: {start.elapsed_time(end):.2f} ms, {peak:.0f} MiB, {mask.sparsity():.1f} % empty")
    assert peak < 600
