"""The frozen target: the model being served, whose hidden states the drafter reads and whose tokens it predicts.

Rule: nothing here has a gradient except while `train_target` makes the tiny one; a given model folder is never changed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

import torch
from config import ConfigError, TargetConfig
from drafter import DrafterShape, rotation
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

LONGEST_SEQUENCE = 4096
ROPE_THETA = 10000.0

transformers_logging.disable_progress_bar()


def build_target_layer_ids(target_layers: int, draft_layers: int) -> List[int]:
    """0-based decoder layers whose OUTPUT is read, spread from the second to the third from the end."""
    if draft_layers == 1:
        return [target_layers // 2]
    start, end = 1, target_layers - 3
    return [round(start + i * (end - start) / (draft_layers - 1)) for i in range(draft_layers)]


class TargetError(ConfigError):
    """A model that cannot be a target; says why."""


class Target:
    """One thread at a time may run it; `embed` and `to_logits` only read weights and may be used beside it."""

    def __init__(self, model: Any, draft_layers: int) -> None:
        """Raises TargetError."""
        self.model = model.eval().requires_grad_(False)
        self.config = model.config.get_text_config()
        self.decoder = model.get_decoder()
        self.layer_ids = build_target_layer_ids(self.config.num_hidden_layers, draft_layers)
        if len(set(self.layer_ids)) != draft_layers:
            raise TargetError(
                f"{self.config.num_hidden_layers} target layers give {self.layer_ids}: not all different; "
                f"lower drafter.layers"
            )
        self.embed: nn.Embedding = model.get_input_embeddings()
        self.to_logits: nn.Linear = model.get_output_embeddings()
        self._taken: Dict[int, Tensor] = {}
        self._whole = True
        for number in self.layer_ids:
            self.decoder.layers[number].register_forward_hook(self._take(number))

    def _take(self, number: int) -> Callable[..., None]:
        def hook(layer: Any, given: Any, output: Any) -> None:
            self._taken[number] = output[0] if isinstance(output, tuple) else output
            if number == self.layer_ids[-1] and not self._whole:
                raise _Enough

        return hook

    def drafter_shape(self, *, intermediate_size: int, check: bool = True) -> DrafterShape:
        """Raises TargetError when the drafter cannot turn its keys as this target does. check=False: has no weights."""
        shape = DrafterShape(
            hidden_size=self.config.hidden_size,
            intermediate_size=intermediate_size,
            layers=len(self.layer_ids),
            heads=self.config.num_attention_heads,
            kv_heads=self.config.num_key_value_heads,
            head_size=getattr(self.config, "head_dim", None)
            or self.config.hidden_size // self.config.num_attention_heads,
            selected_layers=len(self.layer_ids),
            rope_theta=float(self.config.rope_parameters.get("rope_theta", float("nan"))),
            norm_epsilon=float(self.config.rms_norm_eps),
        )
        if check:
            self._check_rotation(shape)
        return shape

    @torch.no_grad()
    def _check_rotation(self, shape: DrafterShape) -> None:
        """A drafter that turns by another base than its target trains well and is accepted badly (seen in the wild)."""
        longest = int(self.config.max_position_embeddings)
        positions = torch.tensor([[0, 1, 2, longest // 2, longest - 1]], device=self.embed.weight.device)
        theirs = self.decoder.rotary_emb(self.embed.weight[:1].float(), positions)
        ours = rotation(positions, shape.head_size, shape.rope_theta)
        # A frequency that float32 rounds in another way is off by 1.2e-7 of itself; so is the angle, at far positions.
        rounding = 1e-3 + 4e-7 * longest
        for mine, other in zip(ours, theirs, strict=True):
            if mine[:, 0].shape != other.shape or not torch.allclose(mine[:, 0], other.float(), atol=rounding):
                raise TargetError(
                    f"the target's RoPE ({self.config.rope_parameters}) is not the plain one the drafter has; "
                    f"a target with scaled RoPE cannot be drafted for yet"
                )

    @torch.no_grad()
    def features(self, tokens: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """tokens [B, S] -> hidden states of the selected layers side by side, [B, S, K*H].

        positions [B, S] restart at every document of a packed row: transformers then keeps the documents apart. No
        other layer's states are kept, and the layers behind the last selected one are not run.
        """
        self._whole = False
        with contextlib.suppress(_Enough):
            self.decoder(input_ids=tokens, position_ids=positions, use_cache=False)
        return self._select()

    def check_isolation(self) -> None:
        """Raises TargetError. Whether restarting positions keep documents apart is up to the model's own code."""
        size = self.embed.weight.shape[0]
        first, second = (torch.arange(begin, begin + 24, device=self.embed.weight.device) % size for begin in (1, 50))
        positions = torch.arange(24, device=first.device).repeat(2)[None]
        alone = self.features(second[None]).float()
        packed = self.features(torch.cat([first, second])[None], positions)[:, 24:].float()
        apart = float(((packed - alone).norm(dim=-1) / alone.norm(dim=-1)).mean())
        if apart > (1e-3 if self.embed.weight.dtype == torch.float32 else 0.03):
            raise TargetError(
                f"this target looks across the documents of a packed row: a document's hidden states are {apart:.1%} "
                f"off behind another one; set train.pack=false"
            )

    @torch.no_grad()
    def advance(self, tokens: Tensor, cache: DynamicCache) -> Tuple[Tensor, Tensor]:
        """New tokens [B, T] after what the cache holds -> greedy next tokens [B, T], features [B, T, K*H]."""
        self._whole = True
        # By place: newer transformers call the cache otherwise.
        out = self.decoder(tokens, None, None, cache, use_cache=True)
        best: Tensor = self.to_logits(out.last_hidden_state).argmax(-1)
        return best, self._select()

    def forget_layers(self) -> None:
        """From here on only `embed` and `to_logits` are of use: a drafter needs the memory of the rest."""
        self.decoder.layers = nn.ModuleList()

    def _select(self) -> Tensor:
        chosen = torch.cat([self._taken[number] for number in self.layer_ids], dim=-1)
        self._taken.clear()
        return chosen


class _Enough(Exception):
    """All selected layers have run."""


def new_cache() -> DynamicCache:
    return DynamicCache()


def new_model(config: TargetConfig, vocabulary: int, seed: int) -> Any:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_size,
            max_position_embeddings=LONGEST_SEQUENCE,
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )
    )


def load_model(folder: Path, device: torch.device) -> Any:
    """A model folder as transformers writes it; bfloat16 on a GPU. Raises OSError or ValueError from transformers."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), local_files_only=True, attn_implementation="sdpa", dtype=dtype
    )
    return model.to(device)


def train_target(
    model: Any,
    tokens: Tensor,
    length: Tensor,
    config: TargetConfig,
    seed: int,
    on_step: Callable[[int, float], None],
) -> None:
    """Next-token training of the tiny target on rows [N, T] of which `length` tokens count."""
    chance = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config.learning_rate, total_steps=config.steps + 1, pct_start=0.1
    )
    position = torch.arange(tokens.shape[1] - 1)
    model.train()
    for step in range(1, config.steps + 1):
        rows = torch.randint(tokens.shape[0], (config.batch,), generator=chance)
        batch = tokens[rows].to(model.device)
        counted = (position[None] < (length[rows] - 1)[:, None]).to(model.device)
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits[counted], batch[:, 1:][counted])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        on_step(step, loss.item())


@torch.no_grad()
def continue_greedily(
    target: Target, prompts: Tensor, total: int, end_ids: Collection[int], on_token: Callable[[], None]
) -> Tuple[Tensor, Tensor]:
    """prompts [B, P] -> tokens [B, total] and the length of each row; a row ends with one of `end_ids`, which counts.

    Behind a row's end its end token is repeated.
    """
    cache = new_cache()
    tokens = [prompts]
    ends = torch.tensor(sorted(end_ids), device=prompts.device)
    best, _ = target.advance(prompts, cache)
    newest = best[:, -1:]
    ended = torch.isin(newest, ends)
    length = torch.full((prompts.shape[0],), prompts.shape[1] + 1, device=prompts.device)
    tokens.append(newest)
    while sum(part.shape[1] for part in tokens) < total and not bool(ended.all()):
        on_token()
        best, _ = target.advance(newest, cache)
        newest = torch.where(ended, newest, best[:, -1:])
        length += (~ended).squeeze(1)
        ended |= torch.isin(newest, ends)
        tokens.append(newest)
    missing = total - sum(part.shape[1] for part in tokens)
    return torch.cat([*tokens, newest.expand(-1, max(0, missing))], dim=1), length
