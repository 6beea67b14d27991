"""Who may look at what, and the attention that obeys it.

Shapes: B batch, S context tokens, N blocks, W block width (block_size), Q = N*W queries, KV = S + Q.

    KV:  | context 0 .. S-1 | block 0 | block 1 | ... | block N-1 |
    Q :                     | block 0 | block 1 | ... | block N-1 |

Rule: a query sees the context STRICTLY before its block's anchor, and its own block in both directions; nothing else.
With `<=` instead of `<` the training loss looks better and serving accepts almost nothing: the anchor's feature already
knows the next token.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional


def may_attend(query: int, key: int, *, context: int, width: int, anchor: int, kept: bool) -> bool:
    """The definition, for one query and one key. `anchor` and `kept` are those of the query's block."""
    in_context = key < context and key < anchor
    in_own_block = key >= context and (key - context) // width == query // width
    return kept and (in_context or in_own_block)


def dense_mask(anchors: Tensor, kept: Tensor, *, context: int, width: int) -> Tensor:
    """anchors [B, N] positions, kept [B, N] bool -> [B, 1, Q, KV] bool, True where the query may look.

    The same definition in tensors. The queries of a dropped block see nothing at all; their output is zero.
    """
    blocks = anchors.shape[1]
    device = anchors.device
    query_block = torch.arange(blocks * width, device=device) // width
    key_position = torch.arange(context, device=device)
    before_anchor = key_position[None, None, :] < anchors[:, query_block, None]
    own_block = (query_block[:, None] == query_block[None, :]).expand(anchors.shape[0], -1, -1)
    allowed = torch.cat([before_anchor, own_block], dim=-1) & kept[:, query_block, None]
    return allowed[:, None]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor]) -> Tensor:
    """query [B, heads, Q, D], key and value [B, kv_heads, KV, D] -> [B, heads, Q, D]. No mask: everything is seen."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
