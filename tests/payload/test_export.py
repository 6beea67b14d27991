"""The exported folder: exact names and shapes, what servers read, and the same numbers after loading."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from drafter import Drafter
from export import ExportError, expected_tensors, export, load_exported
from order import grow
from prepare import Prepared
from rows import rows_of
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from target import Target, new_model
from test_drafter import published_layout
from tiny import tiny_config, tiny_target
from transformers import AutoModel

VOCABULARY = SimpleNamespace(mask_id=1, end_id=0, size=40)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "export"
    target = tiny_target()
    drafter = Drafter(target.drafter_shape(intermediate_size=48), seed=3)
    rows = rows_of([([1, 2], [True, True])])
    prepared = Prepared(Path(), target, VOCABULARY, rows, grow((), met=0, rows=1), 20, None)
    export(folder, drafter, prepared, tiny_config(), {"acceptance_length": 3.21, "prompts": 7})
    return folder, drafter, target


def test_the_weights_are_exactly_the_published_names_and_shapes_in_bfloat16(exported):
    folder, _, _ = exported
    with safe_open(folder / "model.safetensors", "pt") as stored:
        found = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
        kinds = {stored.get_slice(name).get_dtype() for name in found}
        assert stored.metadata() == {"format": "pt"}
    assert found == published_layout(2, 32, 48, 2, 1, 16, 2)
    assert len(found) == 11 * 2 + 3
    assert kinds == {"BF16"}
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "dflash.py", "README.md"}


def test_five_layers_of_an_8b_sized_drafter_are_58_tensors():
    shape = dataclasses.replace(tiny_target().drafter_shape(intermediate_size=12288), layers=5, selected_layers=5)
    shape = dataclasses.replace(shape, hidden_size=4096, heads=32, kv_heads=8, head_size=128)
    assert expected_tensors(shape) == published_layout(5, 4096, 12288, 32, 8, 128, 5)
    assert len(expected_tensors(shape)) == 58


def test_the_config_says_what_each_server_looks_for(exported):
    folder, _, target = exported
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == ["DFlashDraftModel"]
    assert said["model_type"] == "qwen3"
    assert said["block_size"] == said["dflash_config"]["block_size"] == 8
    assert said["dflash_config"]["mask_token_id"] == 1
    assert said["dflash_config"]["target_layer_ids"] == [1, 3]
    assert said["num_target_layers"] == 6
    assert said["rope_theta"] == said["rope_parameters"]["rope_theta"] == target.config.rope_parameters["rope_theta"]
    assert (said["hidden_size"], said["vocab_size"], said["num_hidden_layers"]) == (32, 40, 2)
    assert said["dtype"] == said["torch_dtype"] == "bfloat16"
    assert said["hidden_act"] == "silu"
    assert said["layer_types"] == ["full_attention"] * 2
    card = (folder / "README.md").read_text()
    assert "Acceptance length: 3.21 on 7 held-out prompts" in card
    assert '"num_speculative_tokens": 7' in card
    assert "--speculative-num-draft-tokens 8" in card


def outputs_of(drafter, block, features, positions):
    split = features.shape[1]
    with torch.no_grad():
        return drafter(block, positions[:, split:], drafter.read_context(features, positions[:, :split]))


def test_transformers_and_safetensors_load_it_back_with_the_same_outputs(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path))
    folder, trained, _ = exported
    block, features, positions = torch.randn(2, 8, 32), torch.randn(2, 11, 64), torch.arange(3, 22).expand(2, -1)
    again, _ = load_exported(folder, torch.device("cpu"))
    by_hand = Drafter(trained.shape, seed=99)
    by_hand.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    wanted = outputs_of(again, block, features, positions)
    assert torch.equal(outputs_of(by_hand, block, features, positions), wanted)
    model = AutoModel.from_pretrained(str(folder), trust_remote_code=True, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(model(block, features, positions), wanted)
    # bfloat16 keeps 8 bits: near what was trained, and not by chance.
    torch.testing.assert_close(outputs_of(trained, block, features, positions), wanted, atol=0.05, rtol=0.05)
    assert {name: tuple(one.shape) for name, one in model.state_dict().items()} == expected_tensors(trained.shape)


@pytest.mark.parametrize("spoil", ["missing", "surplus", "shape"])
def test_a_folder_with_other_tensors_is_refused(exported, tmp_path, spoil):
    folder, _, _ = exported
    weights = load_file(folder / "model.safetensors")
    if spoil == "missing":
        del weights["norm.weight"]
    elif spoil == "surplus":
        weights["embed_tokens.weight"] = torch.zeros(2, 2)
    else:
        weights["fc.weight"] = weights["fc.weight"][:, :-1].contiguous()
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ExportError, match="not the published tensors"):
        load_exported(tmp_path, torch.device("cpu"))


def test_a_target_is_not_taken_for_a_drafter(tmp_path):
    Target(new_model(tiny_config().target, 40, 0), 2).model.save_pretrained(tmp_path)
    with pytest.raises(ExportError, match="describes no DFlash drafter"):
        load_exported(tmp_path, torch.device("cpu"))
