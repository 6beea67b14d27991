"""The DFlash drafter: a few Qwen3-style layers that fill a whole block at once from the target's hidden states.

Shapes: B batch, S context tokens, Q block tokens, H hidden size, K selected target layers, D head size.

Rule: parameter names and shapes are those of the published checkpoints (11 a layer + fc, hidden_norm, norm; no
embedding and no output head, both are the frozen target's), so what is trained here is what the servers load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from attention import Mask, attend
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

INITIAL_DEVIATION = 0.02

ContextKeysValues = List[Tuple[Tensor, Tensor]]
"""For each layer: keys (normed, rotated) and values of the context, [B, kv_heads, S, D] both."""


@dataclass(frozen=True)
class DrafterShape:
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    selected_layers: int
    rope_theta: float
    norm_epsilon: float


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(hidden.dtype)


def rotation(positions: Tensor, head_size: int, theta: float) -> Tuple[Tensor, Tensor]:
    """positions [B, T] -> cosines and sines, [B, 1, T, D] both, in float32."""
    exponents = torch.arange(0, head_size, 2, device=positions.device, dtype=torch.float32) / head_size
    angles = positions.float()[..., None] * theta**-exponents
    angles = torch.cat([angles, angles], dim=-1)[:, None]
    return angles.cos(), angles.sin()


def rotate(states: Tensor, turn: Tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = turn
    first, second = states.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (states * cosines + turned * sines).to(states.dtype)


class DraftAttention(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.q_proj = nn.Linear(shape.hidden_size, shape.heads * shape.head_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.kv_heads * shape.head_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.kv_heads * shape.head_size, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_size, shape.hidden_size, bias=False)
        self.q_norm = RMSNorm(shape.head_size, shape.norm_epsilon)
        self.k_norm = RMSNorm(shape.head_size, shape.norm_epsilon)

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (-1, self.head_size))

    def keys_values(self, hidden: Tensor, turn: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
        """For context and block alike: the same projections serve both."""
        keys = self.k_norm(self._heads(self.k_proj(hidden))).transpose(1, 2)
        values = self._heads(self.v_proj(hidden)).transpose(1, 2)
        return rotate(keys, turn), values

    def forward(
        self, hidden: Tensor, turn: Tuple[Tensor, Tensor], context: Tuple[Tensor, Tensor], mask: Optional[Mask]
    ) -> Tensor:
        queries = rotate(self.q_norm(self._heads(self.q_proj(hidden))).transpose(1, 2), turn)
        keys, values = self.keys_values(hidden, turn)
        keys = torch.cat([context[0], keys], dim=2)
        values = torch.cat([context[1], values], dim=2)
        mixed = attend(queries, keys, values, mask)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class DraftMLP(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return out


class DraftLayer(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_epsilon)
        self.self_attn = DraftAttention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_epsilon)
        self.mlp = DraftMLP(shape)

    def forward(
        self, hidden: Tensor, turn: Tuple[Tensor, Tensor], context: Tuple[Tensor, Tensor], mask: Optional[Mask]
    ) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), turn, context, mask)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class Drafter(nn.Module):
    def __init__(self, shape: DrafterShape, *, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = False
        """Layers run again in the backward pass instead of keeping what they computed: less memory, a third slower."""
        self.fc = nn.Linear(shape.selected_layers * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.norm_epsilon)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden_size, shape.norm_epsilon)
        self._initialise(seed)

    def _initialise(self, seed: int) -> None:
        chance = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=INITIAL_DEVIATION, generator=chance)

    def read_context(self, features: Tensor, positions: Tensor) -> ContextKeysValues:
        """features [B, S, K*H] of the selected target layers, positions [B, S].

        Fused and normed once; every layer takes its keys and values from that one result. No layer updates it.
        """
        context = self.hidden_norm(self.fc(features))
        turn = rotation(positions, self.shape.head_size, self.shape.rope_theta)
        return [layer.self_attn.keys_values(context, turn) for layer in self.layers]

    def forward(
        self, block: Tensor, positions: Tensor, context: ContextKeysValues, mask: Optional[Mask] = None
    ) -> Tensor:
        """block [B, Q, H] token embeddings, positions [B, Q], mask made by attention.py or None -> hidden [B, Q, H].

        The hidden state of slot k predicts the token AT slot k; slot 0 is the clean anchor and predicts nothing.
        """
        turn = rotation(positions, self.shape.head_size, self.shape.rope_theta)
        for layer, layer_context in zip(self.layers, context, strict=True):
            if self.recompute and torch.is_grad_enabled():
                # Reentrant, the gradient of what is not a tensor argument of its own (the context) would be lost.
                block = checkpoint(layer, block, turn, layer_context, mask, use_reentrant=False)
            else:
                block = layer(block, turn, layer_context, mask)
        hidden: Tensor = self.norm(block)
        return hidden


def extend_context(context: Optional[ContextKeysValues], new: ContextKeysValues) -> ContextKeysValues:
    """The context grown by newly verified tokens; what a block itself put in is never kept."""
    if context is None:
        return new
    return [
        (torch.cat([keys, new_keys], dim=2), torch.cat([values, new_values], dim=2))
        for (keys, values), (new_keys, new_values) in zip(context, new, strict=True)
    ]
