"""Which checkpoints stay, and that a half-written one never counts."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoint
import contract
import pytest
import torch
from checkpoint import (
    TRAINING_STATE,
    WEIGHTS,
    CheckpointError,
    NotSaved,
    best_step,
    complete_steps,
    load_checkpoint,
    save_checkpoint,
)
from optimise import Optimisation
from order import Chapter
from tiny import tiny_config, tiny_drafter, tiny_target


@pytest.fixture
def save(tmp_path):
    learner = tiny_drafter(tiny_target())

    def saved(step: int, acceptance: float | None = None, keep: int = 2) -> Path:
        return save_checkpoint(
            tmp_path,
            step=step,
            drafter=learner,
            optimisation=Optimisation(learner, tiny_config()).state(),
            config=tiny_config(),
            prepared=tmp_path / "prepared",
            chapters=(Chapter(0, 3),),
            batches_met=step,
            keep=keep,
            acceptance=acceptance,
        )

    return saved


def test_the_newest_stay_and_the_best_by_acceptance(save, tmp_path):
    for step, acceptance in [(1, 2.0), (2, 3.5), (3, 3.0), (4, None), (5, 3.4)]:
        save(step, acceptance)
    assert complete_steps(tmp_path) == [2, 4, 5]
    assert best_step(tmp_path) == 2
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 2, "acceptance": 3.5}
    save(6, 3.5)
    assert complete_steps(tmp_path) == [5, 6]
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 6


def test_without_any_acceptance_only_the_newest_stay(save, tmp_path):
    for step in range(1, 5):
        save(step)
    assert complete_steps(tmp_path) == [3, 4]
    assert not (tmp_path / "best.json").exists()


def test_what_breaks_off_while_saving_leaves_the_checkpoints_that_were(save, tmp_path, monkeypatch):
    save(1)
    monkeypatch.setattr(checkpoint.torch, "save", lambda *given: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(NotSaved, match=r"step 2 could not be written .*disk full; last good checkpoint: .*step-1"):
        save(2)
    assert complete_steps(tmp_path) == [1]
    monkeypatch.undo()
    save(2)
    assert complete_steps(tmp_path) == [1, 2]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".step")]
    (tmp_path / "step-2" / contract.CHECKPOINT_MARKER).unlink()
    assert complete_steps(tmp_path) == [1]


@pytest.mark.parametrize("name", [TRAINING_STATE, WEIGHTS])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_damaged_checkpoint_is_refused_with_those_beside_it(save, tmp_path, name, share):
    save(1)
    path = save(2) / name
    with path.open("r+b") as stream:
        stream.truncate(int(path.stat().st_size * share))
    with pytest.raises(CheckpointError, match=r"step-2 is damaged \(.+\); beside it there is step-1"):
        load_checkpoint(tmp_path / "step-2", torch.device("cpu"))
    path.unlink()
    with pytest.raises(CheckpointError, match="step-2 is damaged"):
        load_checkpoint(tmp_path / "step-2", torch.device("cpu"))
