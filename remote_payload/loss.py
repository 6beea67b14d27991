"""The training loss: cross entropy of every block slot against the token at that very position.

Shapes: B batch, N blocks, W block width, T sequence length, H hidden size, V vocabulary.

Rule: slot k of the block at anchor a is labelled with token a+k (never a+k+1); slot 0 is not supervised. A slot weighs
exp(-(k-1)/decay), or by D-PACE what it is worth to the accepted length now. Logits are made in chunks that are
recomputed in the backward pass: the whole [slots, V] never exists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Tuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

DPACE_ALPHA = 0.5


@dataclass(frozen=True)
class BlockLoss:
    loss: Tensor
    """Scalar, weighted mean."""
    accuracy: Tensor
    """Share of supervised slots where the best token is the label."""
    simulated_acceptance: Tensor
    """Mean over blocks of 1 + the labels hit before the first miss: what decoding accepts if labels are greedy."""
    slot_accuracy: Tensor
    """[W-1]: of each slot, the share of its labels that are hit."""
    slot_survival: Tensor
    """[W-1]: the share where it and every slot before it are hit."""

    def facts(self) -> Dict[str, Any]:
        """For metrics.jsonl. Waits for the device."""
        return {
            "accuracy": float(self.accuracy),
            "simulated_acceptance": float(self.simulated_acceptance),
            "slot_accuracy": self.slot_accuracy.tolist(),
            "slot_survival": self.slot_survival.tolist(),
        }


def decay_weights(width: int, decay: float) -> Tensor:
    """[W-1], for slots 1 .. W-1."""
    return torch.tensor([math.exp(-(slot - 1) / decay) for slot in range(1, width)])


def dpace_weights(losses: Tensor, valid: Tensor) -> Tensor:
    """D-PACE (arXiv 2605.18810, equations 7 to 9). losses and valid [blocks, W-1] -> weights of the same shape.

    The expected accepted length is the sum over j of the product of the confidences of slots 1 .. j. A slot weighs what
    its log-probability moves of it: the sum over j >= k of those products. A confidence is the label's probability p,
    smoothed to alpha + (1 - alpha) * p, so that slots behind a bad one still learn; what the weights multiply is the
    plain -log p, and no gradient goes through them. The loss is their weighted mean, as with decay.
    """
    confidence = (DPACE_ALPHA + (1 - DPACE_ALPHA) * torch.exp(-losses)).masked_fill(~valid, 0.0)
    reached = confidence.cumprod(dim=1)
    return reached.flip(1).cumsum(dim=1).flip(1) * valid


def block_labels(
    tokens: Tensor, document: Tensor, learned: Tensor, anchors: Tensor, kept: Tensor, width: int
) -> Tuple[Tensor, Tensor]:
    """tokens, document, learned [B, T]; anchors, kept [B, N] -> labels and supervised, [B, N, W-1] both.

    Supervised: a token to learn, of the anchor's document, with nothing unlearned between it and the anchor.
    """
    positions = anchors[..., None] + torch.arange(1, width, device=tokens.device)
    inside = positions.clamp(max=tokens.shape[1] - 1)

    def at(values: Tensor) -> Tensor:
        return values.gather(1, inside.flatten(1)).view_as(positions)

    same_document = at(document) == document.gather(1, anchors)[..., None]
    good = (positions < tokens.shape[1]) & same_document & at(learned) & kept[..., None]
    return at(tokens), good.cumprod(dim=2).bool()


def block_loss(
    hidden: Tensor,
    labels: Tensor,
    supervised: Tensor,
    to_logits: Callable[[Tensor], Tensor],
    *,
    weighting: str,
    decay: float,
    chunk_blocks: int,
) -> BlockLoss:
    """hidden [B, N, W, H], labels and supervised [B, N, W-1]. `to_logits` is the frozen output head."""
    width = hidden.shape[2]
    drafted = hidden[:, :, 1:].flatten(0, 1)
    wanted, valid = labels.flatten(0, 1), supervised.flatten(0, 1)

    def chunk_losses(states: Tensor, want: Tensor) -> Tuple[Tensor, Tensor]:
        logits = to_logits(states.flatten(0, 1)).float()
        losses = functional.cross_entropy(logits, want.flatten(), reduction="none").view_as(want)
        return losses, logits.detach().argmax(-1).view_as(want)

    parts = []
    for start in range(0, drafted.shape[0], chunk_blocks):
        part = slice(start, start + chunk_blocks)
        parts.append(checkpoint(chunk_losses, drafted[part], wanted[part], use_reentrant=False))
    losses, best = (torch.cat(columns) for columns in zip(*parts, strict=True))

    if weighting == "dpace":
        weights = dpace_weights(losses.detach(), valid)
    else:
        weights = decay_weights(width, decay).to(hidden.device) * valid
    hit = (best == wanted) & valid
    blocks = valid.any(dim=1).sum().clamp(min=1)
    return BlockLoss(
        loss=(losses * weights).sum() / weights.sum().clamp(min=1e-6),
        accuracy=hit.sum() / valid.sum().clamp(min=1),
        simulated_acceptance=1 + hit.cumprod(dim=1).sum() / blocks,
        slot_accuracy=hit.sum(dim=0) / valid.sum(dim=0).clamp(min=1),
        slot_survival=hit.cumprod(dim=1).sum(dim=0) / valid.sum(dim=0).clamp(min=1),
    )
