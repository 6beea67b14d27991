"""Settings are strict; the text's split is disjoint; a GPU machine never falls back to its CPU."""

from __future__ import annotations

import contract
import pytest
import torch
from attention import may_attend
from config import ConfigError, differences_that_forbid_resume, load_config, read_config_file, resolve, to_yaml
from devices import DeviceError, choose_device, gpu_node_exists
from start import layers_of, read_command_line
from text import CHOICES, FAMILIES, PIECES, SPLITS, UNSEEN_FAMILY, make_documents, templates


def test_defaults_and_overrides_from_text_and_numbers():
    config = load_config({"steps": "7", "train.learning_rate": "1e-3", "text": {"regenerate": "false"}})
    assert (config.steps, config.train.learning_rate, config.text.regenerate) == (7, 0.001, False)
    assert load_config({}).block_size == 8


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"target_steps": 5}, "did you mean target.steps"),
        ({"train.stesp": 5}, "unknown setting train.stesp; did you mean target.steps or steps?"),
        ({"learning_rate": 1}, "train.learning_rate"),
        ({"zebra.quark": 1}, "unknown setting zebra.quark"),
        ({"steps": "many"}, "steps: 'many' is not a whole number"),
        ({"steps": 2.5}, "not a whole number"),
        ({"steps": True}, "not a whole number"),
        ({"steps": None}, "not a whole number"),
        ({"steps": 0}, "steps: 0 must be above 0"),
        ({"train.learning_rate": "nan"}, "not a number"),
        ({"text.regenerate": "maybe"}, "not true or false"),
        ({"device": "gpu"}, "none of auto, cpu, cuda"),
        ({"block_size": 1}, "drafts nothing"),
        ({"target.layers": 4}, "selected layers repeat"),
        ({"text.tokens": 20}, "no response"),
        ({"seed": 2**40}, "must be below 4294967296"),
        ({"threads": 10**6}, "is more than 1024"),
    ],
)
def test_what_is_refused_and_how(overrides, words):
    with pytest.raises(ConfigError) as refused:
        load_config(overrides)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps: 5\ntrain:\n  stesp: 3\n", ":3: unknown setting train.stesp; did you mean "),
        ("\nsteps: many\n", ":2: steps: 'many' is not a whole number"),
        ("steps: '5'\n", ':1: steps: "5" is text, and should be a whole number: without the quotes'),
        ("steps:\n", ":1: steps: '' is not a whole number"),
        ("steps: 5\nsteps: 6\n", ":2: steps stands twice; first in "),
        ("train: {batch: 2}\ntrain.batch: 3\n", ":2: train.batch stands twice; first in "),
        ("train: 5\n", ":1: unknown setting train"),
        ("steps: [1, 2]\n", ":1: steps takes one value, not a list"),
        ("- steps\n", ":1: settings are written as `name: value`, not as a list"),
        ("steps: 5\n  train: 3\n", ":2: not YAML: "),
        ("block_size: 1\n", ":1: block_size: 1 drafts nothing"),
        ("log:\n  every_steps: 0\n", ":2: log.every_steps: 0 must be above 0"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path, text, words):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        resolve(read_config_file(file))
    assert f"mine.yaml{words}" in str(refused.value)


def test_a_file_then_set_then_the_run_spec_and_the_places_are_told(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("steps: 10\ntrain:\n  learning_rate: 1e-3\n  anchors: 3\n")
    asked = read_command_line(["--config", str(file), "--set", "steps=11", "train.batch=7"])
    config, places = resolve(*layers_of(asked, contract.RunSpec("r", settings={"train": {"batch": 8}})))
    assert (config.steps, config.train.learning_rate, config.train.batch, config.train.anchors) == (11, 0.001, 8, 3)
    assert places["steps"] == "--set steps=11"
    assert places["train.anchors"].endswith("mine.yaml:4")
    assert places["train.batch"] == contract.RUN_SPEC
    again = tmp_path / "saved.yaml"
    again.write_text(to_yaml(config))
    assert resolve(read_config_file(again))[0] == config


def test_what_is_no_setting_is_refused():
    with pytest.raises(ConfigError, match="--set steps: write --set NAME=VALUE"):
        layers_of(read_command_line(["--set", "steps"]), contract.RunSpec("r"))
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        layers_of(read_command_line(["--config", "nowhere.yaml"]), contract.RunSpec("r"))


@pytest.mark.parametrize("spec", [{"targets": 0}, {"drafters": -1}, {"targets": "2"}, {"settings": []}])
def test_a_run_spec_that_asks_for_what_cannot_be_is_refused(spec):
    with pytest.raises(ConfigError, match=next(iter(spec))):
        layers_of(read_command_line([]), contract.RunSpec("r", **spec))


def test_a_resumed_run_may_be_longer_but_not_another():
    old = load_config({}).flat()
    assert differences_that_forbid_resume(old, load_config({"steps": 9999, "evaluate.prompts": 3}).flat()) == []
    (sentence,) = differences_that_forbid_resume(old, load_config({"train.batch": 5}).flat())
    assert sentence.startswith("train.batch: ")


def test_the_splits_share_no_template_and_no_document():
    chosen = {split: templates(split) for split in SPLITS}
    assert sum(len(set(some)) for some in chosen.values()) == len(FAMILIES) * CHOICES**PIECES
    texts = {split: {text for _, text in make_documents(some, 300, "x")} for split, some in chosen.items()}
    assert not texts["train"] & (texts["heldout_template"] | texts["heldout_family"])
    assert all(template.family != UNSEEN_FAMILY for template in chosen["train"])


def test_any_two_pieces_of_a_held_out_template_are_met_together_in_training():
    def pairs(template):
        return {(template.family, i, j, template.pieces[i], template.pieces[j]) for i, j in ((0, 1), (0, 2), (1, 2))}

    known = {pair for template in templates("train") for pair in pairs(template)}
    held_out = templates("heldout_template")
    assert {t.family for t in held_out} == set(FAMILIES) - {UNSEEN_FAMILY}
    assert all(pairs(template) <= known for template in held_out)


def test_documents_are_the_seeds():
    some = templates("train")
    assert make_documents(some, 20, "a") == make_documents(some, 20, "a") != make_documents(some, 20, "b")


def test_devices():
    def chosen(wanted, works, node):
        return choose_device(wanted, cuda_works=works, gpu_node_exists=node)

    assert chosen("auto", False, False) == torch.device("cpu")
    assert chosen("cpu", True, True) == torch.device("cpu")
    assert chosen("auto", True, True) == chosen("cuda", True, True) == torch.device("cuda", 0)
    with pytest.raises(DeviceError, match="/dev/nvidia0 is there, but torch"):
        chosen("auto", False, True)
    with pytest.raises(DeviceError, match="sees no GPU"):
        chosen("cuda", False, False)


def test_a_file_with_a_gpu_nodes_name_is_no_gpu(tmp_path):
    double = tmp_path / "nvidia0"
    double.touch()
    assert not gpu_node_exists(str(double))
    assert not gpu_node_exists(str(tmp_path / "nothing"))
    assert gpu_node_exists("/dev/null")


def test_the_anchor_itself_is_not_context():
    assert not may_attend(0, 3, context=8, width=4, start=0, anchor=3, kept=True)
    assert may_attend(0, 2, context=8, width=4, start=0, anchor=3, kept=True)
