"""DFlash draft model for transformers: `AutoModel.from_pretrained(folder, trust_remote_code=True)`.

Stands alone: it travels with the exported weights. Shapes: B batch, S context tokens, Q block tokens, H hidden size,
K selected target layers. Rule: names and numbers are those of the drafter it was exported from.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel, Qwen3Config


class DFlashNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(hidden.dtype)


def rotate(states: Tensor, turn: Tuple[Tensor, Tensor]) -> Tensor:
    first, second = states.chunk(2, dim=-1)
    return (states * turn[0] + torch.cat([-second, first], dim=-1) * turn[1]).to(states.dtype)


class DFlashAttention(nn.Module):
    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        size, head = config.hidden_size, config.head_dim
        self.head_dim = head
        self.q_proj = nn.Linear(size, config.num_attention_heads * head, bias=False)
        self.k_proj = nn.Linear(size, config.num_key_value_heads * head, bias=False)
        self.v_proj = nn.Linear(size, config.num_key_value_heads * head, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * head, size, bias=False)
        self.q_norm = DFlashNorm(head, config.rms_norm_eps)
        self.k_norm = DFlashNorm(head, config.rms_norm_eps)

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (-1, self.head_dim))

    def _keys_values(self, hidden: Tensor, turn: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
        keys = self.k_norm(self._heads(self.k_proj(hidden))).transpose(1, 2)
        return rotate(keys, turn), self._heads(self.v_proj(hidden)).transpose(1, 2)

    def forward(self, hidden: Tensor, context: Tensor, turn: Tuple[Tensor, Tensor], mask: Optional[Tensor]) -> Tensor:
        split = context.shape[1]
        before, own = (tuple(part[:, :, place] for part in turn) for place in (slice(split), slice(split, None)))
        queries = rotate(self.q_norm(self._heads(self.q_proj(hidden))).transpose(1, 2), own)
        pairs = [self._keys_values(context, before), self._keys_values(hidden, own)]
        keys, values = (torch.cat(parts, dim=2) for parts in zip(*pairs, strict=True))
        groups = queries.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(groups, dim=1) for part in (keys, values))
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class DFlashMLP(nn.Module):
    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DFlashLayer(nn.Module):
    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.input_layernorm = DFlashNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DFlashAttention(config)
        self.post_attention_layernorm = DFlashNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = DFlashMLP(config)

    def forward(self, hidden: Tensor, context: Tensor, turn: Tuple[Tensor, Tensor], mask: Optional[Tensor]) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), context, turn, mask)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class DFlashDraftModel(PreTrainedModel):
    config_class = Qwen3Config
    _no_split_modules = ["DFlashLayer"]  # noqa: RUF012

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__(config)
        selected = len(config.dflash_config["target_layer_ids"])
        self.block_size = config.dflash_config["block_size"]
        self.mask_token_id = config.dflash_config["mask_token_id"]
        self.fc = nn.Linear(selected * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = DFlashNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DFlashLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = DFlashNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def forward(
        self,
        noise_embedding: Tensor,
        target_hidden: Tensor,
        position_ids: Tensor,
        attention_mask: Optional[Tensor] = None,
    ) -> Tensor:
        """noise_embedding [B, Q, H]: anchor and masks, embedded by the target. target_hidden [B, S, K*H]: its selected
        layers' outputs. position_ids [B, S+Q]. attention_mask [B, 1, Q, S+Q] bool. -> hidden states [B, Q, H]; slot k
        predicts, through the target's output head, the token at its own position; slot 0 is the anchor itself."""
        context = self.hidden_norm(self.fc(target_hidden))
        theta, head = self.config.rope_parameters["rope_theta"], self.config.head_dim
        exponents = torch.arange(0, head, 2, device=position_ids.device, dtype=torch.float32) / head
        angles = position_ids.float()[..., None] * theta**-exponents
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        hidden = noise_embedding
        for layer in self.layers:
            hidden = layer(hidden, context, (angles.cos(), angles.sin()), attention_mask)
        return self.norm(hidden)
