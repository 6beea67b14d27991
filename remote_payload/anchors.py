"""Where the training blocks start.

Rule: always the same number of anchors, sorted ascending, with a keep mask for those that are only filling: no shape
ever depends on the data.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor


def choose_anchors(learned: Tensor, count: int, chance: torch.Generator) -> Tuple[Tensor, Tensor]:
    """learned [B, T]: the tokens of responses -> anchors [B, count] sorted, kept [B, count].

    Uniform without replacement among the positions where this token and the next are learned: decoding starts a block
    at a token the target has emitted, and an anchor needs a label after it. Filling anchors are not kept.
    """
    rows, widest = learned.shape
    valid = learned & torch.nn.functional.pad(learned[:, 1:], (0, 1))
    draw = torch.rand(rows, widest, generator=chance).masked_fill(~valid, 2.0)
    if widest < count:
        draw = torch.nn.functional.pad(draw, (0, count - widest), value=2.0)
    score, chosen = draw.topk(count, dim=1, largest=False)
    kept = score < 1.5
    anchors = torch.where(kept, chosen, widest - 1)
    order = torch.argsort(anchors + (~kept) * (widest + count), dim=1, stable=True)
    return anchors.gather(1, order), kept.gather(1, order)
