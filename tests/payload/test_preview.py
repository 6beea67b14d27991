"""--plan: what would run, and nothing is made."""

from __future__ import annotations

from types import SimpleNamespace

import contract
import pytest
import train
from drafter import DrafterShape
from preview import drafter_parameters, memory_bytes, preview
from target import new_model
from tiny import TINY, tiny_config, tiny_drafter, tiny_target


def test_the_plan_says_devices_sizes_shapes_and_memory():
    said = "\n".join(preview(tiny_config(train__accumulation=3), contract.RunSpec("r", targets=2, drafters=1)))
    learner, target = tiny_drafter(tiny_target()), new_model(tiny_config().target, 320, 0)
    assert f"target: {sum(one.numel() for one in target.parameters()):,} parameters, made and trained here" in said
    assert "device cpu" in said
    assert "reads layers [1, 2, 3]" in said
    assert "2 rows x 48 context tokens, 4 blocks of 8 = 32 queries over 80 keys a row" in said
    assert "a step: 3 batches; 4 steps" in said
    assert "to compile, one after the other: nothing" in said, "a CPU compiles nothing"
    assert "memory of a drafter, about" in said and "memory of a target, about" in said
    assert drafter_parameters(learner.shape) == sum(one.numel() for one in learner.parameters())


def test_every_drafter_takes_batches_of_its_own_and_holds_a_queue():
    one, two = (
        preview(tiny_config(device="cpu", train__accumulation=3), contract.RunSpec("r", targets=2, drafters=number))
        for number in (1, 2)
    )
    assert "a step: 6 batches; 4 steps" in two
    assert (one[-1], two[-1]) == tuple(f"waiting between them: at most {size}.0 MiB" for size in (64, 128))


def test_the_engine_is_said():
    one, several = (
        preview(tiny_config(device="cpu", engine=engine), contract.RunSpec("r", targets=2, drafters=1))
        for engine in ("auto", "processes")
    )
    assert "engine: threads, all in one process" in one
    assert "engine: processes, 3 processes" in several


def test_memory_grows_with_what_needs_it():
    target, shape = tiny_target(), tiny_drafter(tiny_target()).shape

    def drafter(on_cuda=False, longest=48, **changes):
        return memory_bytes(tiny_config(**changes), shape, 1000, target.config, longest=longest, on_cuda=on_cuda)[
            "drafter"
        ]

    plain = drafter()
    assert plain["weights, gradients and optimizer"] == 16 * drafter_parameters(shape)
    assert drafter(longest=96)["a batch's hidden states"] == 2 * plain["a batch's hidden states"]
    assert drafter(train__anchors=8)["activations"] > plain["activations"]
    assert drafter(on_cuda=True)["a batch's hidden states"] * 2 == plain["a batch's hidden states"]
    many = {"drafter__layers": 3, "train__anchors": 64}
    assert drafter(train__recompute=True, **many)["activations"] < drafter(**many)["activations"]


@pytest.mark.parametrize(
    ("shape", "longest", "anchors", "recompute", "seen_mib"),
    [
        (DrafterShape(2048, 6144, 3, 16, 8, 128, 3, 1e6, 1e-6), 32_768, 256, False, 7707),
        (DrafterShape(2048, 6144, 3, 16, 8, 128, 3, 1e6, 1e-6), 32_768, 256, True, 6189),
        (DrafterShape(1024, 3072, 5, 16, 8, 128, 5, 1e6, 1e-6), 4096, 1024, False, 8905),
        (DrafterShape(1024, 3072, 5, 16, 8, 128, 5, 1e6, 1e-6), 4096, 1024, True, 3709),
    ],
)
def test_the_estimate_is_near_what_an_h200_needed(shape, longest, anchors, recompute, seen_mib):
    """tests/gpu/test_memory_on_gpu.py, 2026-11-29: torch 2.11.0+cu130, the peak of the second step."""
    settings = {"train__batch": 1, "train__anchors": anchors, "train__recompute": recompute, "text__tokens": longest}
    config = tiny_config(block_size=16, train__loss_chunk_blocks=128, **settings)
    target = SimpleNamespace(vocab_size=32_000, intermediate_size=1)
    parts = memory_bytes(config, shape, 0, target, longest=longest, on_cuda=True)["drafter"]
    assert sum(parts.values()) / 2**20 == pytest.approx(seen_mib, rel=0.15)


def test_the_plan_of_a_run_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(contract.RUN_DIR_VARIABLE, raising=False)
    words = [f"{name}={value}" for name, value in TINY.items()]
    assert train.main(["--plan", "--set", *words, "steps=9"]) == contract.EXIT_OK
    said = capsys.readouterr().out
    assert "  steps = 9   (--set steps=9)" in said
    assert "memory of a drafter" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "stepps=3"], "unknown setting stepps"),
        (["--model", "/nowhere"], "no folder /nowhere"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(contract.RUN_DIR_VARIABLE, raising=False)
    assert train.main(["--plan", *words]) == contract.EXIT_BAD_CONFIG
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
