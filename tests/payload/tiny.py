"""The smallest models and settings the tests train and decode with."""

from __future__ import annotations

from pathlib import Path

import config
import torch
from config import Config, load_config
from drafter import Drafter
from target import Target, new_model

PAYLOAD = Path(config.__file__).parent

TINY = {
    "steps": 4,
    "text.documents": 24,
    "text.tokens": 48,
    "text.prompt_tokens": 16,
    "target.steps": 3,
    "target.batch": 2,
    "target.hidden_size": 32,
    "target.intermediate_size": 32,
    "target.heads": 2,
    "target.kv_heads": 1,
    "drafter.intermediate_size": 32,
    "train.batch": 2,
    "train.anchors": 4,
    "checkpoint.every_steps": 2,
    "log.every_steps": 1,
    "evaluate.prompts": 2,
    "evaluate.control_prompts": 1,
    "evaluate.new_tokens": 10,
}


def tiny_config(**changes: object) -> Config:
    return load_config({**TINY, **{name.replace("__", "."): value for name, value in changes.items()}})


def tiny_target(seed: int = 0, vocabulary: int = 40) -> Target:
    model = new_model(tiny_config().target, vocabulary, seed)
    # A head of its own: with the embedding as head an untrained model repeats its last token for ever.
    chance = torch.Generator().manual_seed(seed)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(model.lm_head.weight.shape, generator=chance))
    return Target(model, 2)


def tiny_drafter(target: Target, seed: int = 0) -> Drafter:
    return Drafter(target.drafter_shape(intermediate_size=32), seed=seed)
