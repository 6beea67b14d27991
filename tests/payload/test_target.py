"""Targets from disk through transformers: which states are kept, what is refused, which row masks."""

from __future__ import annotations

import pytest
import torch
from drafter import rotation
from target import Target, TargetError, load_model, new_cache
from tiny import tiny_drafter, tiny_target
from tokens import load_vocabulary, train_vocabulary
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def make(family: str, **changes):
    torch.manual_seed(0)
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))
    if family == "qwen3_moe":
        return Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**SIZES, **EXPERTS, **changes}))
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "llama"])
def test_a_model_from_disk_gives_the_outputs_of_the_selected_layers_and_no_others(family, tmp_path):
    make(family).save_pretrained(tmp_path)
    target = Target(load_model(tmp_path, torch.device("cpu")), 2)
    tokens = torch.tensor([[3, 4, 5, 6]])
    every = target.model(tokens, output_hidden_states=True).hidden_states
    wanted = torch.cat([every[number + 1] for number in target.layer_ids], dim=-1)
    ran = []
    for number, layer in enumerate(target.decoder.layers):
        layer.register_forward_hook(lambda *call, number=number: ran.append(number))
    assert torch.equal(target.features(tokens), wanted)
    assert max(ran) <= target.layer_ids[-1]
    best, features = target.advance(tokens, new_cache())
    assert torch.equal(features, wanted)
    assert torch.equal(best, target.model(tokens).logits.argmax(-1))
    shape = target.drafter_shape(intermediate_size=32)
    assert (shape.rope_theta, shape.head_size) == (1e6, 16)
    assert all(not parameter.requires_grad for parameter in target.model.parameters())


def test_the_drafters_rotation_is_the_targets():
    target = tiny_target()
    shape, positions = tiny_drafter(target).shape, torch.arange(3, 40)[None]
    theirs = target.decoder.rotary_emb(torch.zeros(1, 1), positions)
    for ours, other in zip(rotation(positions, shape.head_size, shape.rope_theta), theirs, strict=True):
        torch.testing.assert_close(ours[:, 0], other)


@pytest.mark.parametrize(("longest", "theta"), [(40_960, 1e6), (262_144, 5e6)])
def test_rounding_at_far_positions_is_no_other_rotation(longest, theta):
    """Those of the published Qwen3-8B and of its successor for long texts."""
    plain = {"rope_type": "default", "rope_theta": theta}
    model = make("qwen3", head_dim=128, max_position_embeddings=longest, rope_parameters=plain)
    Target(model, 2).drafter_shape(intermediate_size=32)
    stretched = {"rope_type": "linear", "factor": 1.01, "rope_theta": theta}
    model = make("qwen3", head_dim=128, max_position_embeddings=longest, rope_parameters=stretched)
    with pytest.raises(TargetError, match="is not the plain one"):
        Target(model, 2).drafter_shape(intermediate_size=32)


def test_a_target_that_turns_otherwise_is_refused():
    scaled = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}
    with pytest.raises(TargetError, match=r"RoPE .*linear.* is not the plain one"):
        Target(make("qwen3", rope_parameters=scaled), 2).drafter_shape(intermediate_size=32)
    with pytest.raises(TargetError, match="not all different"):
        Target(make("qwen3", num_hidden_layers=4), 2)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "llama"])
def test_a_packed_rows_documents_have_the_hidden_states_they_have_alone(family):
    target = Target(make(family), 2)
    target.check_isolation()
    parts = [
        torch.randint(300, (1, length), generator=torch.Generator().manual_seed(length)) for length in (5, 1, 9, 4)
    ]
    positions = torch.cat([torch.arange(part.shape[1]) for part in parts])[None]
    packed = target.features(torch.cat(parts, dim=1), positions)
    torch.testing.assert_close(packed, torch.cat([target.features(part) for part in parts], dim=1))


def test_a_target_that_looks_across_documents_is_refused():
    target = Target(make("qwen3"), 2)
    plain = target.decoder.forward
    target.decoder.forward = lambda position_ids=None, **given: plain(**given)
    with pytest.raises(TargetError, match=r"looks across the documents of a packed row.*train\.pack=false"):
        target.check_isolation()


def test_the_mask_is_the_first_row_no_token_has_and_a_full_vocabulary_is_refused(tmp_path):
    vocabulary = train_vocabulary(["some text"], 270)
    vocabulary.tokenizer.mask_token = None
    used = len(vocabulary.tokenizer)
    vocabulary.save(tmp_path)
    model = make("qwen3", vocab_size=used + 5, eos_token_id=7)
    model.save_pretrained(tmp_path)
    loaded = load_vocabulary(tmp_path)
    assert (loaded.mask_id, loaded.size) == (used, used + 5)
    assert loaded.end_ids == {loaded.end_id, 7}
    make("qwen3", vocab_size=used).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="none is left to mask with"):
        load_vocabulary(tmp_path)
    with pytest.raises(FileNotFoundError, match="no model folder"):
        load_vocabulary(tmp_path / "nowhere")
