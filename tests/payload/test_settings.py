"""Settings are strict; the text's split is disjoint; a GPU machine never falls back to its CPU."""

from __future__ import annotations

import pytest
import torch
from attention import may_attend
from config import ConfigError, differences_that_forbid_resume, load_config
from devices import DeviceError, choose_device
from text import CHOICES, FAMILIES, PIECES, SPLITS, UNSEEN_FAMILY, make_documents, templates


def test_defaults_and_overrides_from_text_and_numbers():
    config = load_config({"steps": "7", "train.learning_rate": "1e-3", "text": {"regenerate": "false"}})
    assert (config.steps, config.train.learning_rate, config.text.regenerate) == (7, 0.001, False)
    assert load_config({}).block_size == 8


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"target_steps": 5}, "did you mean target.steps"),
        ({"train.stesp": 5}, "unknown setting train.stesp"),
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
    ],
)
def test_what_is_refused_and_how(overrides, words):
    with pytest.raises(ConfigError) as refused:
        load_config(overrides)
    assert words in str(refused.value)


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


def test_the_anchor_itself_is_not_context():
    assert not may_attend(0, 3, context=8, width=4, anchor=3, kept=True)
    assert may_attend(0, 2, context=8, width=4, anchor=3, kept=True)
