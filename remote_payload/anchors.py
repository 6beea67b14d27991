"""Where the training blocks start.

Rule: always the same number of anchors, sorted ascending, with a keep mask for those that are only filling: no shape
ever depends on the data. The documents of a row get equal shares of them, however long they are.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

PADDING = -1
"""The document number of positions that hold nothing."""


def choose_anchors(document: Tensor, learned: Tensor, count: int, chance: torch.Generator) -> Tuple[Tensor, Tensor]:
    """document [B, T] numbers, learned [B, T]: tokens to learn -> anchors [B, count] sorted, kept [B, count].

    An anchor is a token to learn whose next token is one too, of the same document: decoding starts a block at a token
    the target has emitted, and an anchor needs a label after it. Uniform without replacement within each document.
    Filling anchors repeat the row's last position and are not kept.
    """
    rows, length = document.shape
    valid = torch.zeros(rows, length, dtype=torch.bool)
    valid[:, :-1] = learned[:, :-1] & learned[:, 1:] & (document[:, :-1] == document[:, 1:])
    draw = torch.rand(rows, length, generator=chance)
    # Every document's candidates in the order drawn; its first ones are taken before any other's second ones.
    turn = _rank_in_document(document, draw.masked_fill(~valid, 1.0))
    score = (turn + draw.double()).masked_fill(~valid, float("inf"))
    if length < count:
        score = torch.nn.functional.pad(score, (0, count - length), value=float("inf"))
    best, chosen = score.topk(count, dim=1, largest=False)
    kept = best.isfinite()
    anchors = torch.where(kept, chosen, length - 1)
    order = torch.argsort(anchors + (~kept) * (length + count), dim=1, stable=True)
    return anchors.gather(1, order), kept.gather(1, order)


def _rank_in_document(document: Tensor, draw: Tensor) -> Tensor:
    """[B, T]: how many positions of the same document have a smaller draw. draw in 0 .. 1."""
    order = torch.argsort(document * 2 + draw.double(), dim=1, stable=True)
    grouped = document.gather(1, order)
    place = torch.arange(document.shape[1]).expand_as(grouped)
    fresh = torch.ones_like(grouped, dtype=torch.bool)
    fresh[:, 1:] = grouped[:, 1:] != grouped[:, :-1]
    group_start = torch.where(fresh, place, 0).cummax(dim=1).values
    return torch.empty_like(place).scatter(1, order, place - group_start)


def document_starts(document: Tensor) -> Tensor:
    """[B, T] document numbers -> [B, T]: where the document of each position begins."""
    place = torch.arange(document.shape[1], device=document.device).expand_as(document)
    fresh = torch.ones_like(document, dtype=torch.bool)
    fresh[:, 1:] = document[:, 1:] != document[:, :-1]
    return torch.where(fresh, place, 0).cummax(dim=1).values
