"""Who may look at what, and the attention that obeys it: the fast way beside the slow one it is checked against.

Shapes: B batch, S context tokens, N blocks, W block width (block_size), Q = N*W queries, KV = S + Q.

    KV:  | context 0 .. S-1 | block 0 | block 1 | ... | block N-1 |
    Q :                     | block 0 | block 1 | ... | block N-1 |

Rule: a query sees the context of its own document STRICTLY before its block's anchor, and its own block in both
directions; nothing else. With `<=` instead of `<` the training loss looks better and serving accepts almost nothing:
the anchor's feature already knows the next token.

On CUDA: flex_attention, compiled, over a mask of 128 x 128 tiles. On a CPU: SDPA over a dense mask (flex_attention has
no backward there, torch 2.11 to 2.15).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch
from sealing import compiled_or_fallback, eager_fallback
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

TILE = 128
"""The tile of flex_attention's kernels."""


@dataclass(frozen=True)
class Layout:
    """Where the blocks of a batch are and how far back each may look."""

    anchors: Tensor
    """[B, N], ascending in each row; an anchor is at most `context`."""
    starts: Tensor
    """[B, N], where the anchor's document begins. Documents of a row stand one after the other."""
    kept: Tensor
    """[B, N]. The queries of a dropped block see nothing at all; their output is zero."""
    context: int
    width: int


Mask = Union[Tensor, BlockMask]


def may_attend(query: int, key: int, *, context: int, width: int, start: int, anchor: int, kept: bool) -> bool:
    """The definition, for one query and one key. `start`, `anchor` and `kept` are those of the query's block."""
    in_context = key < context and start <= key < anchor
    in_own_block = key >= context and (key - context) // width == query // width
    return kept and (in_context or in_own_block)


def dense_mask(layout: Layout) -> Tensor:
    """[B, 1, Q, KV] bool, True where the query may look: the same definition in tensors."""
    rows, blocks = layout.anchors.shape
    device = layout.anchors.device
    query_block = torch.arange(blocks * layout.width, device=device) // layout.width
    key = torch.arange(layout.context, device=device)
    before_anchor = key < layout.anchors[:, query_block, None]
    in_document = key >= layout.starts[:, query_block, None]
    own_block = (query_block[:, None] == query_block[None, :]).expand(rows, -1, -1)
    allowed = torch.cat([before_anchor & in_document, own_block], dim=-1) & layout.kept[:, query_block, None]
    return allowed[:, None]


def tile_mask(layout: Layout) -> BlockMask:
    """The same definition for flex_attention: which tiles are empty, partial or full, and the rule inside partial ones.

    Made from the layout in a few tensor operations over [B, Q, KV / 128]: torch's create_block_mask goes over
    [B, Q, KV] (2.4 GB at 32,768 x 72,768) unless it is compiled too, once more for each shape and device.
    """
    blocks = layout.anchors.shape[1]
    context, width, device = layout.context, layout.width, layout.anchors.device
    queries = blocks * width
    # A dropped block: an empty stretch of context, and an own stretch behind everything.
    begin = torch.where(layout.kept, layout.starts, 0)
    end = torch.where(layout.kept, layout.anchors, 0)
    own = torch.where(layout.kept, context + width * torch.arange(blocks, device=device), context + queries)
    own_end = torch.where(layout.kept, own + width, own)

    def allowed(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // width
        first, behind, own_first = begin[row, block], end[row, block], own[row, block]
        return ((key >= first) & (key < behind)) | ((key >= own_first) & (key < own_first + width))

    query_block = torch.arange(_whole_tiles(queries), device=device).clamp(max=queries - 1) // width
    tile = torch.arange(0, _whole_tiles(context + queries), TILE, device=device)
    # How much of each tile a query sees: of the context, and of its own block, which may be as wide as a tile.
    seen = sum(
        _shared(first[:, query_block, None], behind[:, query_block, None], tile)
        for first, behind in ((begin, end), (own, own_end))
    )
    some, every = seen > 0, seen == TILE
    some, every = (grid.unflatten(1, (-1, TILE)) for grid in (some, every))
    full = every.all(dim=2)[:, None]
    partial = some.any(dim=2)[:, None] & ~full
    return BlockMask.from_kv_blocks(
        *_listed(partial),
        *_listed(full),
        BLOCK_SIZE=TILE,
        mask_mod=allowed,
        seq_lengths=(queries, context + queries),
    )


def _shared(first: Tensor, behind: Tensor, tile: Tensor) -> Tensor:
    """How many keys of [first, behind) lie in the tile that begins at `tile`."""
    return (torch.minimum(behind, tile + TILE) - torch.maximum(first, tile)).clamp(min=0)


def _whole_tiles(length: int) -> int:
    return -(-length // TILE) * TILE


def _listed(grid: Tensor) -> tuple[Tensor, Tensor]:
    """[..., tiles] bool -> how many are set and where, the set ones first and ascending."""
    order = torch.argsort(grid.int(), dim=-1, descending=True, stable=True)
    return grid.sum(dim=-1, dtype=torch.int32), order.int()


def make_mask(layout: Layout) -> Mask:
    return tile_mask(layout) if layout.anchors.is_cuda else dense_mask(layout)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Mask]) -> Tensor:
    """query [B, heads, Q, D], key and value [B, kv_heads, KV, D] -> [B, heads, Q, D]. No mask: everything is seen."""
    if isinstance(mask, BlockMask):
        with compiled_or_fallback("flex_attention"):
            mixed: Tensor = compiled_attention()(query.to(value.dtype), key.to(value.dtype), value, mask)
        return mixed
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _tiled(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask) -> Tensor:
    """What is compiled. Run as plain Python it is a fallback, which says so instead of crawling."""
    if not torch.compiler.is_dynamo_compiling():
        eager_fallback("flex_attention")
    mixed: Tensor = flex_attention(
        query,
        key,
        value,
        block_mask=mask,
        enable_gqa=query.shape[1] != key.shape[1],
        # Never the kernel for decoding, which torch picks by itself for few queries.
        kernel_options={"FORCE_USE_FLEX_ATTENTION": True},
    )
    return mixed


_compiled: Optional[Callable[..., Any]] = None


def compiled_attention() -> Callable[..., Any]:
    """One wrapper for the process; static shapes unless `use_dynamic_shapes` came first."""
    global _compiled
    if _compiled is None:
        _compiled = torch.compile(_tiled, dynamic=False, fullgraph=True)
    return _compiled


def use_dynamic_shapes() -> None:
    """For more lengths than are worth compiling one by one."""
    global _compiled
    _compiled = torch.compile(_tiled, dynamic=True, fullgraph=True)
