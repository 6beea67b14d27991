"""Speculative decoding with the drafter, one prompt at a time, and plain greedy decoding to hold it against.

Rule: lossless. The target verifies every drafted token, so the output is the target's own greedy text token for token,
whatever the drafter says; a bad drafter costs time only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Collection, List, Optional, Sequence

import torch
from drafter import ContextKeysValues, Drafter, extend_context
from target import Target, new_cache
from torch import Tensor


@dataclass(frozen=True)
class Decoded:
    tokens: List[int]
    """New tokens; an end token is the last of them."""
    accepted: List[int]
    """For each cycle: tokens it yielded, in 1 .. block size (the accepted draft and the target's own next token)."""


@dataclass(frozen=True)
class Acceptance:
    length: float
    """Mean tokens a cycle yields: between 1 and the block size."""
    cycles: int
    tokens: int
    identical: int
    """Prompts whose output equals plain greedy decoding."""
    prompts: int

    @property
    def lossless(self) -> bool:
        return self.identical == self.prompts


@torch.no_grad()
def decode_greedily(
    target: Target,
    prompt: Sequence[int],
    *,
    new_tokens: int,
    end_ids: Collection[int],
    on_cycle: Callable[[], None] = lambda: None,
) -> List[int]:
    cache = new_cache()
    out: List[int] = []
    feed = list(prompt)
    while len(out) < new_tokens:
        on_cycle()
        best, _ = target.advance(torch.tensor([feed], device=target.embed.weight.device), cache)
        out.append(int(best[0, -1]))
        if out[-1] in end_ids:
            break
        feed = out[-1:]
    return out


@torch.no_grad()
def decode_speculatively(
    target: Target,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    width: int,
    new_tokens: int,
    end_ids: Collection[int],
    mask_id: int,
    use_context: bool = True,
    on_cycle: Callable[[], None] = lambda: None,
) -> Decoded:
    """on_cycle is called before each, and what it raises ends the decoding.

    `use_context=False` gives the drafter zeros for the target's hidden states: what it knows without them.
    """
    device = target.embed.weight.device
    cache = new_cache()
    best, features = target.advance(torch.tensor([list(prompt)], device=device), cache)
    out, accepted = [int(best[0, -1])], []
    context: Optional[ContextKeysValues] = None
    known = 0
    while len(out) < new_tokens and out[-1] not in end_ids:
        on_cycle()
        positions = torch.arange(known, known + features.shape[1], device=device)[None]
        block = torch.full((1, width), mask_id, device=device)
        block[0, 0] = out[-1]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            context = extend_context(context, drafter.read_context(features * float(use_context), positions))
            known += features.shape[1]
            hidden = drafter(target.embed(block), torch.arange(known, known + width, device=device)[None], context)
            block[0, 1:] = target.to_logits(hidden[:, 1:]).argmax(-1)
        best, features = target.advance(block, cache)
        right = _right_prefix(block[0, 1:], best[0, :-1])
        yielded = best[0, : right + 1].tolist()
        ends = [place for place, token in enumerate(yielded) if token in end_ids]
        if ends:
            yielded = yielded[: ends[0] + 1]
        if right + 1 < width:
            cache.crop(right + 1 - width)  # negative: takes away that many
        features = features[:, : right + 1]
        accepted.append(len(yielded))
        out += yielded
    return Decoded(out[:new_tokens], accepted)


def _right_prefix(drafted: Tensor, verified: Tensor) -> int:
    return int((drafted == verified).int().cumprod(0).sum())


def measure_acceptance(decoded: Sequence[Decoded], reference: Sequence[Sequence[int]]) -> Acceptance:
    counts = [count for one in decoded for count in one.accepted]
    return Acceptance(
        length=sum(counts) / len(counts) if counts else 1.0,
        cycles=len(counts),
        tokens=sum(len(one.tokens) for one in decoded),
        identical=sum(one.tokens == list(plain) for one, plain in zip(decoded, reference, strict=True)),
        prompts=len(decoded),
    )
