"""decode.py: an exported drafter measured against its target, from the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import contract
import decode
import pytest
import torch
from drafter import Drafter
from export import export
from order import grow
from prepare import Prepared
from rows import rows_of
from target import Target, new_model
from tiny import tiny_config
from tokens import train_vocabulary


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("decode")
    vocabulary = train_vocabulary(["one two three"], 270)
    model = new_model(tiny_config().target, vocabulary.size, 0)
    vocabulary.save(top / "target")
    model.save_pretrained(top / "target")
    target = Target(model, 2)
    rows = rows_of([([1, 2], [True, True])])
    prepared = Prepared(Path(), target, vocabulary, rows, grow((), met=0, rows=1), 20, None)
    drafter = Drafter(target.drafter_shape(intermediate_size=32), seed=1)
    export(top / "drafter", drafter, prepared, tiny_config(), {"acceptance_length": 1.0, "prompts": 1})
    (top / "prompts.jsonl").write_text("".join(json.dumps({"text": f"one two {i} three"}) + "\n" for i in range(4)))
    return top


def run(folders, *more, prompts="prompts.jsonl", drafter="drafter"):
    words = ["--target", folders / "target", "--drafter", folders / drafter, "--prompts", folders / prompts]
    return decode.main([str(word) for word in [*words, *more]])


def test_an_exported_drafter_is_measured_by_real_decoding(folders, capsys):
    assert run(folders, "--set", "evaluate.prompts=3", "evaluate.new_tokens=12", "device=cpu") == contract.EXIT_OK
    said = json.loads(capsys.readouterr().out)
    assert (said["prompts"], said["identical_prompts"], said["lossless"], said["block_size"]) == (3, 3, True, 8)
    assert said["tokens"] == 36
    assert 1.0 <= said["acceptance_length"] <= 8.0
    assert said["acceptance_length_definition"] == contract.ACCEPTANCE_LENGTH


def spoiled(folders, name: str, **changes) -> str:
    """A copy of the drafter with config.json changed; None takes a key away."""
    shutil.copytree(folders / "drafter", folders / name)
    path = folders / name / "config.json"
    described = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in described.items() if value is not None}))
    return name


def test_a_published_folder_with_block_size_and_rotary_base_in_their_older_places_is_read(folders, capsys):
    dflash = {"mask_token_id": 1, "target_layer_ids": [1, 3]}
    older = spoiled(folders, "older", rope_parameters=None, dflash_config=dflash)
    assert run(folders, "--set", "evaluate.prompts=1", "evaluate.new_tokens=3", drafter=older) == contract.EXIT_OK
    assert json.loads(capsys.readouterr().out)["block_size"] == 8


def test_a_folder_that_is_no_drafter_of_this_target_is_named_with_what_is_wrong(folders, capsys):
    def refused(drafter: str) -> str:
        assert run(folders, drafter=drafter) == contract.EXIT_BAD_CONFIG
        return capsys.readouterr().err

    assert "config.json lacks 'rms_norm_eps'" in refused(spoiled(folders, "lacking", rms_norm_eps=None))
    assert "config.json lacks 'block_size'" in refused(
        spoiled(folders, "blockless", block_size=None, dflash_config={"mask_token_id": 1, "target_layer_ids": [1, 3]})
    )
    with (folders / spoiled(folders, "cut") / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)
    assert re.search(r"ExportError: \S+cut/model.safetensors is damaged", refused("cut"))
    (folders / "lacking" / "config.json").write_text("{")
    assert "lacking/config.json is not JSON" in refused("lacking")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_too(folders, capsys):
    assert run(folders, "--set", "evaluate.prompts=4", "evaluate.new_tokens=40", "device=cuda") == contract.EXIT_OK
    said = json.loads(capsys.readouterr().out)
    assert said["device"] == "cuda:0"
    assert said["prompts"] == 4
    assert 1.0 <= said["acceptance_length"] <= 8.0
    print(said)


def test_what_cannot_be_measured_is_named(folders, capsys):
    (folders / "bad.jsonl").write_text("{\n")
    assert run(folders, prompts="bad.jsonl") == contract.EXIT_BAD_CONFIG
    assert "DataError: bad.jsonl:1: not JSON" in capsys.readouterr().err
    assert run(folders, drafter="nosuch") == contract.EXIT_BAD_CONFIG
    assert "nosuch is no folder of a model" in capsys.readouterr().err
    assert run(folders, drafter="target") == contract.EXIT_BAD_CONFIG
    assert "describes no DFlash drafter" in capsys.readouterr().err
    assert run(folders, "--set", "evaluate.prompt=3") == contract.EXIT_BAD_CONFIG
    assert "did you mean evaluate.prompts" in capsys.readouterr().err
