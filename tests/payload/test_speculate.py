"""Speculative decoding is lossless whatever the drafter is worth, and the acceptance length counts what it says."""

from __future__ import annotations

import pytest
import torch
from speculate import Decoded, decode_greedily, decode_speculatively, measure_acceptance
from tiny import tiny_drafter, tiny_target

MASK = 1


class Oracle(torch.nn.Module):
    """A drafter that knows the answer and is wrong from slot `good` + 1 on: exact acceptance by construction."""

    def __init__(self, target, text, good):
        super().__init__()
        # Fewer words than hidden numbers: each word has a hidden state with logit 1 for it and 0 for the others.
        self.state_of = torch.linalg.pinv(target.to_logits.weight).T
        self.text, self.good = text, good

    def read_context(self, features, positions):
        return []

    def forward(self, block, positions, context, mask=None):
        answers = [self.text[position] for position in positions[0].tolist()]
        words = [word if slot <= self.good else (word + 1) % len(self.state_of) for slot, word in enumerate(answers)]
        return self.state_of[torch.tensor(words)][None]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [2, 8])
def test_output_is_plain_greedy_decoding(seed, width):
    target = tiny_target(seed)
    drafter = tiny_drafter(target, seed)
    prompt = torch.randint(2, 40, (5 + seed,), generator=torch.Generator().manual_seed(seed)).tolist()
    plain = decode_greedily(target, prompt, new_tokens=25, end_ids=())
    for use_context in (True, False):
        decoded = decode_speculatively(
            target,
            drafter,
            prompt,
            width=width,
            new_tokens=25,
            end_ids=(),
            mask_id=MASK,
            use_context=use_context,
        )
        assert decoded.tokens == plain
        assert all(1 <= count <= width for count in decoded.accepted)


def test_decoding_can_be_ended_between_two_cycles():
    class EnoughError(Exception):
        pass

    def after_two():
        calls.append(1)
        if len(calls) == 3:
            raise EnoughError

    target = tiny_target()
    limits = {"new_tokens": 60, "end_ids": (), "on_cycle": after_two}
    calls: list[int] = []
    with pytest.raises(EnoughError):
        decode_greedily(target, [5, 9], **limits)
    calls.clear()
    with pytest.raises(EnoughError):
        decode_speculatively(target, tiny_drafter(target), [5, 9], width=8, mask_id=MASK, **limits)


@pytest.mark.parametrize("good", [0, 1, 3, 7])
def test_acceptance_is_the_right_prefix_and_the_targets_own_token(good):
    target = tiny_target(vocabulary=30)
    prompt = [5, 9, 13]
    plain = decode_greedily(target, prompt, new_tokens=60, end_ids=())
    oracle = Oracle(target, prompt + plain, good)
    decoded = decode_speculatively(target, oracle, prompt, width=8, new_tokens=30, end_ids=(), mask_id=MASK)
    assert decoded.tokens == plain[:30]
    assert set(decoded.accepted) == {min(good, 7) + 1}


def test_an_end_token_ends_both_ways_of_decoding_at_the_same_place():
    target = tiny_target(2)
    prompt = [4, 8, 15, 16]
    free = decode_greedily(target, prompt, new_tokens=40, end_ids=())
    for end_id in set(free):
        plain = decode_greedily(target, prompt, new_tokens=40, end_ids={end_id})
        assert plain == free[: free.index(end_id) + 1]
        decoded = decode_speculatively(
            target, tiny_drafter(target), prompt, width=8, new_tokens=40, end_ids={end_id}, mask_id=MASK
        )
        assert decoded.tokens == plain


@pytest.mark.parametrize("new_tokens", [1, 2, 8, 9])
def test_short_answers(new_tokens):
    target = tiny_target(3)
    plain = decode_greedily(target, [3], new_tokens=new_tokens, end_ids=())
    decoded = decode_speculatively(
        target, tiny_drafter(target), [3], width=8, new_tokens=new_tokens, end_ids=(), mask_id=MASK
    )
    assert decoded.tokens == plain
    assert len(plain) == new_tokens


def test_an_untrained_drafter_accepts_about_nothing():
    target = tiny_target(5)
    decoded = [
        decode_speculatively(
            target, tiny_drafter(target), [seed + 2, 7], width=8, new_tokens=24, end_ids=(), mask_id=MASK
        )
        for seed in range(6)
    ]
    assert 1.0 <= measure_acceptance(decoded, [one.tokens for one in decoded]).length < 1.3


def test_the_acceptance_length_is_the_mean_over_cycles():
    measured = measure_acceptance([Decoded([1, 2], [2, 4]), Decoded([3], [6])], [[1, 2], [3]])
    assert (measured.length, measured.cycles, measured.tokens, measured.lossless) == (4.0, 3, 3, True)
    assert not measure_acceptance([Decoded([1, 2], [2])], [[1, 3]]).lossless
