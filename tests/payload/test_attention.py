"""The mask against its definition, and the proof that nothing at or after an anchor leaks into its block."""

from __future__ import annotations

import attention
import pytest
import torch
from attention import TILE, Layout, attend, dense_mask, may_attend, tile_mask
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sealing import EagerFallback, fallbacks
from tiny import tiny_drafter, tiny_target
from torch.nn.attention.flex_attention import flex_attention


@st.composite
def layouts(draw, most_context=9, most_blocks=4, widths=(2, 3, 4)):
    context = draw(st.integers(1, most_context))
    width = draw(st.sampled_from(widths))
    rows = draw(st.integers(1, 2))
    blocks = draw(st.integers(1, most_blocks))
    anchors = [sorted(draw(st.lists(st.integers(0, context), min_size=blocks, max_size=blocks))) for _ in range(rows)]
    starts = [[draw(st.integers(0, anchor)) for anchor in row] for row in anchors]
    kept = [draw(st.lists(st.booleans(), min_size=blocks, max_size=blocks)) for _ in range(rows)]
    return Layout(torch.tensor(anchors), torch.tensor(starts), torch.tensor(kept), context, width)


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_the_dense_mask_is_the_definition(layout):
    mask = dense_mask(layout)
    for row in range(len(layout.anchors)):
        for query in range(mask.shape[2]):
            block = query // layout.width
            for key in range(mask.shape[3]):
                wanted = may_attend(
                    query,
                    key,
                    context=layout.context,
                    width=layout.width,
                    start=int(layout.starts[row, block]),
                    anchor=int(layout.anchors[row, block]),
                    kept=bool(layout.kept[row, block]),
                )
                assert bool(mask[row, 0, query, key]) == wanted, (row, query, key)


def own_block_fills_a_tile(context):
    """Alone, or together with the context before it."""
    return Layout(torch.tensor([[context]]), torch.tensor([[0]]), torch.tensor([[True]]), context, width=128)


@given(layouts(most_context=700, most_blocks=24, widths=(3, 10, 16, 128)))
@example(own_block_fills_a_tile(context=128))
@example(own_block_fills_a_tile(context=100))
@settings(max_examples=60, deadline=None)
def test_the_tile_mask_is_the_dense_mask(layout):
    dense, tiles = dense_mask(layout), tile_mask(layout)
    rows, _, queries, keys = dense.shape
    assert tiles.shape == dense.shape
    row, query, key = torch.meshgrid(*(torch.arange(size) for size in (rows, queries, keys)), indexing="ij")
    assert torch.equal(tiles.mask_mod(row, torch.tensor(0), query, key), dense[:, 0])

    fill = (-keys % TILE, -queries % TILE)
    seen = (
        torch.nn.functional.pad(dense[:, 0], (0, fill[0], 0, fill[1])).unflatten(2, (-1, TILE)).unflatten(1, (-1, TILE))
    )
    some = seen.any(dim=4).any(dim=2)
    # Rows behind the last query ask for nothing: a tile is full without them.
    asked = torch.nn.functional.pad(dense[:, 0], (0, fill[0], 0, fill[1]), value=True)
    asked[:, :queries, keys:] = False
    every = asked.unflatten(2, (-1, TILE)).unflatten(1, (-1, TILE)).all(dim=4).all(dim=2)
    full = listed(tiles.full_kv_num_blocks, tiles.full_kv_indices)
    partial = listed(tiles.kv_num_blocks, tiles.kv_indices)
    assert torch.equal(full, every)
    assert torch.equal(full | partial, some | every)
    assert not (full & partial).any()


def listed(count, places):
    """[B, 1, rows], [B, 1, rows, tiles] -> [B, rows, tiles] bool."""
    grid = torch.zeros(places.shape, dtype=torch.bool)
    return grid.scatter(3, places.long(), torch.arange(places.shape[3]) < count[..., None])[:, 0]


def layout_of(anchors, kept, context, width, starts=None):
    rows = torch.tensor(anchors)
    return Layout(
        rows, torch.zeros_like(rows) if starts is None else torch.tensor(starts), torch.tensor(kept), context, width
    )


def test_attention_over_a_mask_is_softmax_over_the_allowed_keys():
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8)
    mask = dense_mask(layout_of([[2, 4]], [[True, True]], 5, 3))
    out = attend(query, key, value, mask)
    wide_key, wide_value = key.repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
    scores = (query @ wide_key.transpose(-1, -2) / 8**0.5).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(out, scores.softmax(-1) @ wide_value)


def test_flex_attention_over_the_tile_mask_is_attention_over_the_dense_one():
    """Eagerly and without a gradient: all a CPU can do of it."""
    torch.manual_seed(0)
    layout = layout_of([[2, 40], [0, 77]], [[True, True], [True, False]], 80, 4, starts=[[1, 8], [0, 0]])
    query, key, value = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 88, 16), torch.randn(2, 2, 88, 16)
    with torch.no_grad():
        out = flex_attention(query, key, value, block_mask=tile_mask(layout), enable_gqa=True)
    torch.testing.assert_close(out, attend(query, key, value, dense_mask(layout)))


def test_attention_that_runs_uncompiled_says_so_and_is_counted():
    layout = layout_of([[2, 4]], [[True, True]], 6, 4)
    before = fallbacks()
    states = [torch.randn(1, 1, size, 16) for size in (8, 14, 14)]
    with pytest.raises(EagerFallback, match="flex_attention ran uncompiled in thread MainThread"):
        attention._tiled(*states, tile_mask(layout))
    assert fallbacks() == before + 1


def run_blocks(drafter, features, anchors, kept, width, block):
    rows, context = features.shape[:2]
    positions = (torch.tensor(anchors)[..., None] + torch.arange(width)).flatten(1)
    mask = dense_mask(layout_of(anchors, kept, context, width))
    return drafter(block, positions, drafter.read_context(features, torch.arange(context).expand(rows, -1)), mask)


@pytest.mark.parametrize("row_anchors", [[3, 3, 9], [0, 5, 11]])
def test_features_at_or_after_the_anchor_do_not_reach_the_block(row_anchors):
    torch.manual_seed(1)
    target = tiny_target()
    drafter, width, context = tiny_drafter(target), 4, 12
    features, block = torch.randn(1, context, 64), torch.randn(1, 12, 32)
    with torch.no_grad():
        before = run_blocks(drafter, features, [row_anchors], [[True] * 3], width, block)
        for number, anchor in enumerate(row_anchors):
            slots = slice(number * width, (number + 1) * width)
            after_anchor = features.clone()
            after_anchor[:, anchor:] += 1.0 + torch.randn_like(after_anchor[:, anchor:])
            changed = run_blocks(drafter, after_anchor, [row_anchors], [[True] * 3], width, block)
            assert torch.equal(changed[:, slots], before[:, slots])
            if anchor:
                just_before = features.clone()
                just_before[:, anchor - 1] += 1.0
                changed = run_blocks(drafter, just_before, [row_anchors], [[True] * 3], width, block)
                assert not torch.equal(changed[:, slots], before[:, slots])


def test_other_blocks_do_not_reach_the_block():
    torch.manual_seed(2)
    drafter = tiny_drafter(tiny_target())
    features, block = torch.randn(1, 8, 64), torch.randn(1, 8, 32)
    other = block.clone()
    other[:, 4:] += 1.0
    with torch.no_grad():
        one = run_blocks(drafter, features, [[3, 6]], [[True, True]], 4, block)
        two = run_blocks(drafter, features, [[3, 6]], [[True, True]], 4, other)
    assert torch.equal(one[:, :4], two[:, :4])
    assert not torch.equal(one[:, 4:], two[:, 4:])


def test_dropped_blocks_give_finite_numbers_and_gradients():
    drafter = tiny_drafter(tiny_target())
    features, block = torch.randn(1, 8, 64), torch.randn(1, 8, 32)
    out = run_blocks(drafter, features, [[3, 6]], [[True, False]], 4, block)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in drafter.parameters())
