"""The trained drafter as the folder that SGLang, vLLM and transformers load: config.json, model.safetensors, a card.

Rule: exactly the published names and shapes, 11 a layer and 3 more, in bfloat16. Loaders skip unknown names in silence
and do not miss missing ones, so both are checked here, when writing and when reading.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Tuple

import contract
import torch
from config import Config
from drafter import Drafter, DrafterShape
from prepare import Prepared
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from target import Target
from tokens import Vocabulary

MODEL_CODE = Path(__file__).resolve().parent / "dflash.py"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class ExportError(ValueError):
    """A folder that is no exported drafter."""


def expected_tensors(shape: DrafterShape) -> Dict[str, Tuple[int, ...]]:
    hidden, middle, head = shape.hidden_size, shape.intermediate_size, shape.head_size
    tensors: Dict[str, Tuple[int, ...]] = {
        "fc.weight": (hidden, shape.selected_layers * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for layer in range(shape.layers):
        tensors.update(
            {
                f"layers.{layer}.input_layernorm.weight": (hidden,),
                f"layers.{layer}.post_attention_layernorm.weight": (hidden,),
                f"layers.{layer}.self_attn.q_proj.weight": (shape.heads * head, hidden),
                f"layers.{layer}.self_attn.k_proj.weight": (shape.kv_heads * head, hidden),
                f"layers.{layer}.self_attn.v_proj.weight": (shape.kv_heads * head, hidden),
                f"layers.{layer}.self_attn.o_proj.weight": (hidden, shape.heads * head),
                f"layers.{layer}.self_attn.q_norm.weight": (head,),
                f"layers.{layer}.self_attn.k_norm.weight": (head,),
                f"layers.{layer}.mlp.gate_proj.weight": (middle, hidden),
                f"layers.{layer}.mlp.up_proj.weight": (middle, hidden),
                f"layers.{layer}.mlp.down_proj.weight": (hidden, middle),
            }
        )
    return tensors


def export(folder: Path, drafter: Drafter, prepared: Prepared, config: Config, result: Dict[str, Any]) -> None:
    """Raises ExportError when the drafter's tensors are not the published ones."""
    weights = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in drafter.state_dict().items()
    }
    _check({name: tuple(tensor.shape) for name, tensor in weights.items()}, drafter.shape, "this drafter")
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    save_file(weights, str(fresh / WEIGHTS), metadata={"format": "pt"})
    described = describe(drafter.shape, prepared.target, prepared.vocabulary, config.block_size)
    contract.write_json(fresh / CONFIG, described)
    shutil.copyfile(MODEL_CODE, fresh / MODEL_CODE.name)
    (fresh / "README.md").write_text(card(described, config, result), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(fresh, folder)


def describe(shape: DrafterShape, target: Target, vocabulary: Vocabulary, block_size: int) -> Dict[str, Any]:
    """config.json. block_size and the rotary base stand twice: readers differ in where they look."""
    theirs = target.config
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "block_size": block_size,
        "dflash_config": {
            "block_size": block_size,
            "mask_token_id": vocabulary.mask_id,
            "target_layer_ids": list(target.layer_ids),
        },
        "num_target_layers": theirs.num_hidden_layers,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_epsilon,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "vocab_size": vocabulary.size,
        "max_position_embeddings": theirs.max_position_embeddings,
        "layer_types": ["full_attention"] * shape.layers,
        "max_window_layers": shape.layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": theirs.bos_token_id,
        "eos_token_id": vocabulary.end_id,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "rope_scaling": None,
    }


def load_exported(folder: Path, device: torch.device) -> Tuple[Drafter, Dict[str, Any]]:
    """The drafter in float32, and config.json, with dflash_config whole. Raises ExportError or OSError.

    Published folders have the block size, or the rotary base, in one of two places only.
    """
    described = read_described(folder)
    if described.get("architectures") != ["DFlashDraftModel"] or "dflash_config" not in described:
        raise ExportError(f"{folder / CONFIG} describes no DFlash drafter")
    try:
        described["dflash_config"] = {"block_size": described.get("block_size"), **described["dflash_config"]}
        if not isinstance(described["dflash_config"]["block_size"], int):
            raise KeyError("block_size")
        described["dflash_config"]["mask_token_id"]
        shape = DrafterShape(
            hidden_size=described["hidden_size"],
            intermediate_size=described["intermediate_size"],
            layers=described["num_hidden_layers"],
            heads=described["num_attention_heads"],
            kv_heads=described["num_key_value_heads"],
            head_size=described["head_dim"],
            selected_layers=len(described["dflash_config"]["target_layer_ids"]),
            rope_theta=(described.get("rope_parameters") or described)["rope_theta"],
            norm_epsilon=described["rms_norm_eps"],
        )
    except KeyError as error:
        raise ExportError(f"{folder / CONFIG} lacks {error}") from None
    weights = read_weights(folder)
    _check({name: tuple(tensor.shape) for name, tensor in weights.items()}, shape, str(folder / WEIGHTS))
    drafter = Drafter(shape, seed=0)
    drafter.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return drafter.to(device).eval(), described


def read_described(folder: Path) -> Dict[str, Any]:
    """config.json. Raises ExportError or OSError."""
    try:
        described = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{folder / CONFIG} is not JSON: {error}") from None
    if not isinstance(described, dict):
        raise ExportError(f"{folder / CONFIG} is not an object")
    return described


def read_weights(folder: Path) -> Dict[str, torch.Tensor]:
    """Raises ExportError or OSError."""
    try:
        weights: Dict[str, torch.Tensor] = load_file(str(folder / WEIGHTS))
    except SafetensorError as error:
        raise ExportError(f"{folder / WEIGHTS} is damaged: {error}") from None
    return weights


def check_is_start(folder: Path) -> None:
    """Before anything large is loaded. Raises ExportError."""
    if not any((folder / name).is_file() for name in (CONFIG, contract.CHECKPOINT_MARKER)):
        raise ExportError(f"{folder} is neither an exported drafter ({CONFIG}) nor a complete checkpoint")


def warm_start(drafter: Drafter, folder: Path, target: Target, vocabulary: Vocabulary) -> None:
    """Takes an exported drafter's or a checkpoint's weights and nothing else. Raises ExportError or OSError."""
    check_is_start(folder)
    if (folder / CONFIG).is_file():
        theirs = read_described(folder)
        said = theirs.get("dflash_config") or {}
        base = (theirs.get("rope_parameters") or theirs).get("rope_theta")
        for name, found, wanted in (
            ("target_layer_ids", said.get("target_layer_ids"), target.layer_ids),
            ("mask_token_id", said.get("mask_token_id"), vocabulary.mask_id),
            ("rope_theta", base, drafter.shape.rope_theta),
        ):
            if found != wanted:
                raise ExportError(f"{folder / CONFIG}: {name} is {found}, with this target it is {wanted}")
    weights = read_weights(folder)
    _check({name: tuple(tensor.shape) for name, tensor in weights.items()}, drafter.shape, str(folder / WEIGHTS))
    drafter.load_state_dict({name: tensor.float() for name, tensor in weights.items()})


def _check(found: Dict[str, Tuple[int, ...]], shape: DrafterShape, where: str) -> None:
    wanted = expected_tensors(shape)
    if found != wanted:
        odd = sorted(set(found.items()) ^ set(wanted.items()))
        raise ExportError(f"{where}: not the published tensors: {odd[:4]}")


def card(described: Dict[str, Any], config: Config, result: Dict[str, Any]) -> str:
    """README.md of the folder."""
    dflash = described["dflash_config"]
    width = dflash["block_size"]
    speculative = json.dumps({"method": "dflash", "model": "THIS", "num_speculative_tokens": width - 1})
    sequences = config.train.batch * config.train.accumulation
    return f"""---
library_name: transformers
tags: [dflash, speculative-decoding]
---
# DFlash drafter

Reads the outputs of layers {dflash["target_layer_ids"]} of its target ({described["num_target_layers"]} layers, hidden
size {described["hidden_size"]}) and fills blocks of {width} tokens: the last verified one and {width - 1} drafted ones.

Acceptance length: {result["acceptance_length"]:.2f} on {result["prompts"]} held-out prompts, greedy. That is
{contract.ACCEPTANCE_LENGTH}.

Trained for {config.steps} steps of {sequences} sequences with {config.train.anchors} blocks each. Give it a target with
the same tokenizer and chat template, at the same thinking setting.

    vllm serve TARGET --speculative-config '{speculative}'
    python -m sglang.launch_server --model TARGET --speculative-algorithm DFLASH \\
        --speculative-draft-model-path THIS --speculative-num-draft-tokens {width}
    AutoModel.from_pretrained("THIS", trust_remote_code=True)
"""
