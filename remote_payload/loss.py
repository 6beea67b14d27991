"""The training loss: cross entropy of every block slot against the token at that very position.

Shapes: B batch, N blocks, W block width, T sequence length, H hidden size, V vocabulary.

Rule: slot k of the block at anchor a is labelled with token a+k (never a+k+1), weighted exp(-(k-1)/decay); slot 0 is
not supervised. Logits are made in chunks that are recomputed in the backward pass: the whole [slots, V] never exists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Tuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class BlockLoss:
    loss: Tensor
    """Scalar, weighted mean."""
    accuracy: Tensor
    """Share of supervised slots where the best token is the label."""
    simulated_acceptance: Tensor
    """Mean over blocks of 1 + the labels hit before the first miss: what decoding accepts if labels are greedy."""


def slot_weights(width: int, decay: float) -> Tensor:
    """[W-1], for slots 1 .. W-1."""
    return torch.tensor([math.exp(-(slot - 1) / decay) for slot in range(1, width)])


def block_labels(tokens: Tensor, learned: Tensor, anchors: Tensor, kept: Tensor, width: int) -> Tuple[Tensor, Tensor]:
    """tokens and learned [B, T], anchors and kept [B, N] -> labels and supervised, [B, N, W-1] both.

    A block is supervised up to the first token that is not learned: past a response's end it would guess at what
    somebody else writes.
    """
    positions = anchors[..., None] + torch.arange(1, width, device=tokens.device)
    inside = positions.clamp(max=tokens.shape[1] - 1)
    labels = tokens.gather(1, inside.flatten(1)).view_as(positions)
    wanted = learned.gather(1, inside.flatten(1)).view_as(positions) & (positions < tokens.shape[1])
    return labels, wanted.cumprod(-1).bool() & kept[..., None]


def block_loss(
    hidden: Tensor,
    labels: Tensor,
    supervised: Tensor,
    to_logits: Callable[[Tensor], Tensor],
    *,
    decay: float,
    chunk_blocks: int,
) -> BlockLoss:
    """hidden [B, N, W, H], labels and supervised [B, N, W-1]. `to_logits` is the frozen output head."""
    width = hidden.shape[2]
    drafted = hidden[:, :, 1:].flatten(0, 1)
    wanted, valid = labels.flatten(0, 1), supervised.flatten(0, 1)
    weights = slot_weights(width, decay).to(hidden.device) * valid

    def chunk_sum(states: Tensor, want: Tensor, weight: Tensor) -> Tuple[Tensor, Tensor]:
        logits = to_logits(states.flatten(0, 1)).float()
        losses = functional.cross_entropy(logits, want.flatten(), reduction="none").view_as(want)
        return (losses * weight).sum(), logits.detach().argmax(-1).view_as(want)

    total = hidden.new_zeros((), dtype=torch.float32)
    best = []
    for start in range(0, drafted.shape[0], chunk_blocks):
        part = slice(start, start + chunk_blocks)
        part_sum, part_best = checkpoint(chunk_sum, drafted[part], wanted[part], weights[part], use_reentrant=False)
        total = total + part_sum
        best.append(part_best)
    hit = (torch.cat(best) == wanted) & valid
    blocks = valid.any(dim=1).sum().clamp(min=1)
    return BlockLoss(
        loss=total / weights.sum().clamp(min=1e-6),
        accuracy=hit.sum() / valid.sum().clamp(min=1),
        simulated_acceptance=1 + hit.cumprod(dim=1).sum() / blocks,
    )
