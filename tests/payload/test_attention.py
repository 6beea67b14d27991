"""The mask against its definition, and the proof that nothing at or after an anchor leaks into its block."""

from __future__ import annotations

import pytest
import torch
from attention import attend, dense_mask, may_attend
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_drafter, tiny_target


@st.composite
def layouts(draw):
    context = draw(st.integers(1, 9))
    width = draw(st.integers(2, 4))
    rows = draw(st.integers(1, 2))
    blocks = draw(st.integers(1, 4))
    anchors = [sorted(draw(st.lists(st.integers(0, context), min_size=blocks, max_size=blocks))) for _ in range(rows)]
    kept = [draw(st.lists(st.booleans(), min_size=blocks, max_size=blocks)) for _ in range(rows)]
    return context, width, anchors, kept


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_the_dense_mask_is_the_definition(layout):
    context, width, anchors, kept = layout
    mask = dense_mask(torch.tensor(anchors), torch.tensor(kept), context=context, width=width)
    for row in range(len(anchors)):
        for query in range(mask.shape[2]):
            block = query // width
            for key in range(mask.shape[3]):
                wanted = may_attend(
                    query, key, context=context, width=width, anchor=anchors[row][block], kept=kept[row][block]
                )
                assert bool(mask[row, 0, query, key]) == wanted, (row, query, key)


def test_attention_over_a_mask_is_softmax_over_the_allowed_keys():
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8)
    mask = dense_mask(torch.tensor([[2, 4]]), torch.tensor([[True, True]]), context=5, width=3)
    out = attend(query, key, value, mask)
    wide_key, wide_value = key.repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
    scores = (query @ wide_key.transpose(-1, -2) / 8**0.5).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(out, scores.softmax(-1) @ wide_value)


def run_blocks(drafter, features, anchors, kept, width, block):
    rows, context = features.shape[:2]
    positions = (torch.tensor(anchors)[..., None] + torch.arange(width)).flatten(1)
    mask = dense_mask(torch.tensor(anchors), torch.tensor(kept), context=context, width=width)
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
