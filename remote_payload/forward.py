"""From a batch to its loss: the forward pass of every block at once.

Rule: a function of the batch and the weights, and of nothing else; no shape depends on what the tokens are.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from anchors import document_starts
from attention import Layout, make_mask
from config import Config
from drafter import Drafter
from feed import Batch
from loss import BlockLoss, block_labels, block_loss
from target import Target
from torch import nn


@dataclass(frozen=True)
class Ends:
    """The target's embedding and output head, frozen, on a drafter's device."""

    embed: nn.Embedding
    to_logits: nn.Linear


def ends_on(device: torch.device, target: Target) -> Ends:
    if target.embed.weight.device == device:
        return Ends(target.embed, target.to_logits)
    # Copied together: where they share their weight, the copies do.
    embed, to_logits = copy.deepcopy((target.embed, target.to_logits))
    return Ends(embed.to(device), to_logits.to(device))


def step_loss(batch: Batch, ends: Ends, drafter: Drafter, mask_id: int, config: Config) -> BlockLoss:
    """In bfloat16 on CUDA (weights, residual stream and loss stay float32); in float32 on a CPU."""
    cuda = batch.tokens.is_cuda
    with torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16, enabled=cuda):
        return _step_loss(batch, ends, drafter, mask_id, config)


def _step_loss(batch: Batch, ends: Ends, drafter: Drafter, mask_id: int, config: Config) -> BlockLoss:
    width = config.block_size
    rows, blocks = batch.anchors.shape
    length = batch.tokens.shape[1]
    device = batch.tokens.device

    starts = document_starts(batch.document)
    block_starts = starts.gather(1, batch.anchors)
    block_tokens = torch.full((rows, blocks, width), mask_id, device=device)
    block_tokens[:, :, 0] = batch.tokens.gather(1, batch.anchors)
    block_positions = ((batch.anchors - block_starts)[..., None] + torch.arange(width, device=device)).flatten(1)
    context_positions = torch.arange(length, device=device) - starts

    context = drafter.read_context(batch.features, context_positions)
    mask = make_mask(Layout(batch.anchors, block_starts, batch.kept, length, width))
    # A given target is in bfloat16 there; the residual stream is not.
    hidden = drafter(ends.embed(block_tokens.flatten(1)).float(), block_positions, context, mask)

    labels, supervised = block_labels(batch.tokens, batch.document, batch.learned, batch.anchors, batch.kept, width)
    return block_loss(
        hidden.unflatten(1, (blocks, width)),
        labels,
        supervised,
        ends.to_logits,
        weighting=config.train.loss,
        decay=config.train.loss_decay,
        chunk_blocks=config.train.loss_chunk_blocks,
    )
