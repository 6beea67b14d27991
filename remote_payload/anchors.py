"""Where the training blocks start.

Rule: always the same number of anchors, sorted ascending, with a keep mask for those that are only filling: no shape
ever depends on the data.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor


def choose_anchors(first: Tensor, length: Tensor, count: int, chance: torch.Generator) -> Tuple[Tensor, Tensor]:
    """first [B]: where responses start; length [B]: valid tokens -> anchors [B, count] sorted, kept [B, count].

    Uniform without replacement among first .. length-2: decoding starts a block at a token the target has emitted, and
    an anchor needs a label after it. Filling anchors repeat the last position and are not kept.
    """
    rows, widest = first.shape[0], int(length.max())
    position = torch.arange(widest)
    valid = (position >= first[:, None]) & (position <= (length - 2)[:, None])
    draw = torch.rand(rows, widest, generator=chance).masked_fill(~valid, 2.0)
    if widest < count:
        draw = torch.nn.functional.pad(draw, (0, count - widest), value=2.0)
    score, chosen = draw.topk(count, dim=1, largest=False)
    kept = score < 1.5
    last = (length - 2).clamp(min=0)[:, None]
    anchors = torch.where(kept, chosen, last)
    order = torch.argsort(anchors + (~kept) * (widest + count), dim=1, stable=True)
    return anchors.gather(1, order), kept.gather(1, order)
