"""Whole runs at tiny size, through the same entry the real ones take."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import contract
import feed
import fx_guard
import loop
import pytest
import torch
import train
import workers
from checkpoint import WEIGHTS, complete_steps, load_checkpoint
from config import read_config_file, resolve
from export import load_exported
from progress import Progress
from safetensors.torch import load_file
from stopping import StopRequest
from tiny import PAYLOAD, TINY, tiny_config

DEADLINE_S = 240


def start(folder: Path, monkeypatch, *, resume_from=None, targets=1, drafters=1, **changes) -> int:
    """What `python train.py` does, in this process and without its signal handlers."""
    warmup = bool(changes.pop("warmup", False))
    settings = {**TINY, **{name.replace("__", "."): value for name, value in changes.items()}}
    spec = contract.RunSpec(
        run_id=folder.name,
        settings=settings,
        targets=targets,
        drafters=drafters,
        resume_from=resume_from,
        warmup=warmup,
    )
    folder.mkdir(exist_ok=True)
    contract.write_json(folder / contract.RUN_SPEC, spec)
    monkeypatch.setenv(contract.RUN_DIR_VARIABLE, str(folder))
    monkeypatch.setattr(StopRequest, "install", lambda self: None)
    return train.main([])


def status(folder: Path) -> dict:
    return json.loads((folder / contract.STATUS).read_text())


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        assert start(folder, patch) == contract.EXIT_OK
    return folder


def test_a_run_leaves_its_records(whole_run, tmp_path):
    assert status(whole_run)["phase"] == "done"
    lines = [json.loads(line) for line in (whole_run / contract.METRICS).read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert len(lines[-1]["slot_survival"]) == len(lines[-1]["slot_accuracy"]) == 7
    assert {"phase_s/learn", "phase_s/average", "phase_s/optimise"} <= set(lines[-1])
    assert (whole_run / contract.CHECKPOINTS / "best.json").is_file()
    assert json.loads((whole_run / contract.RUNTIME).read_text())["torch"] == torch.__version__
    first = json.loads((whole_run / contract.RUNTIME).read_text())["first_step"]
    parts = [first[f"{part}_s"] for part in ("imports", "load", "compile", "step")]
    assert sum(parts) == pytest.approx(first["total_s"]) and min(parts) > 0
    assert first["without_imports_and_load_s"] == pytest.approx(sum(parts[2:]))
    result = json.loads((whole_run / contract.RESULT).read_text())
    assert result["lossless"] is True
    assert 1.0 <= result["acceptance_length_untrained"] <= 8.0
    assert result["prompts"] == 2
    assert "accepted drafts and the target's own next token" in result["acceptance_length_definition"]
    assert load_exported(whole_run / contract.EXPORT, torch.device("cpu"))[1]["block_size"] == 8
    assert complete_steps(whole_run / contract.CHECKPOINTS) == [2, 4]
    assert resolve(read_config_file(whole_run / contract.CHECKPOINTS / "step-4" / contract.CONFIG))[0] == tiny_config()


def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(whole_run, tmp_path, monkeypatch):
    half = whole_run / contract.CHECKPOINTS / "step-2"
    resumed = tmp_path / "resumed"
    assert start(resumed, monkeypatch, resume_from=str(half)) == contract.EXIT_OK
    one, two = (load_file(run / contract.CHECKPOINTS / "step-4" / WEIGHTS) for run in (whole_run, resumed))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    metrics = [
        [json.loads(line)["loss"] for line in (run / contract.METRICS).read_text().splitlines()]
        for run in (whole_run, resumed)
    ]
    assert metrics[0][2:] == metrics[1]
    changed = load_file(half / WEIGHTS)
    assert not all(torch.equal(one[name], changed[name]) for name in one)


def test_accumulated_steps_resume_bit_for_bit_too(tmp_path, monkeypatch):
    changes = {"train__accumulation": 2, "steps": 3, "checkpoint__every_steps": 1, "checkpoint__keep": 3}
    assert start(tmp_path / "whole", monkeypatch, **changes) == contract.EXIT_OK
    half = tmp_path / "whole" / contract.CHECKPOINTS / "step-1"
    assert start(tmp_path / "resumed", monkeypatch, resume_from=str(half), **changes) == contract.EXIT_OK
    one, two = (load_file(tmp_path / run / contract.CHECKPOINTS / "step-3" / WEIGHTS) for run in ("whole", "resumed"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_packed_documents_train_and_resume_bit_for_bit(tmp_path, monkeypatch, capsys):
    changes = {"train__pack": True, "steps": 3, "checkpoint__every_steps": 1, "checkpoint__keep": 3}
    # Few of the made documents are short: rows of two need a wider row than a document may be.
    changes |= {"text__prompt_tokens": 4, "text__regenerate": False}
    assert start(tmp_path / "whole", monkeypatch, **changes) == contract.EXIT_OK
    assert re.search(r"packed: \d+ documents in \d+ rows of 48 tokens, \d+% filled", capsys.readouterr().out)
    half = tmp_path / "whole" / contract.CHECKPOINTS / "step-1"
    assert start(tmp_path / "resumed", monkeypatch, resume_from=str(half), **changes) == contract.EXIT_OK
    one, two = (load_file(tmp_path / run / contract.CHECKPOINTS / "step-3" / WEIGHTS) for run in ("whole", "resumed"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("source", [contract.EXPORT, f"{contract.CHECKPOINTS}/step-4"])
def test_a_warm_start_takes_the_weights_and_nothing_else(whole_run, tmp_path, monkeypatch, source):
    changes = {"drafter__start_from": str(whole_run / source), "steps": 1, "train__learning_rate": 1e-9}
    assert start(tmp_path / "run", monkeypatch, **changes) == contract.EXIT_OK
    began = {name: tensor.float() for name, tensor in load_file(whole_run / source / WEIGHTS).items()}
    after = load_file(tmp_path / "run" / contract.CHECKPOINTS / "step-1" / WEIGHTS)
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, began[name], atol=1e-8, rtol=1e-5)
    state = load_checkpoint(tmp_path / "run" / contract.CHECKPOINTS / "step-1", torch.device("cpu"))
    assert (state.step, state.optimisation["scheduler"]["last_epoch"]) == (1, 1), "the optimizer began anew"


def test_a_warm_start_from_another_drafter_is_refused(whole_run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "other"
    shutil.copytree(whole_run / contract.EXPORT, folder)
    said = json.loads((folder / "config.json").read_text())
    said["dflash_config"]["target_layer_ids"] = [0, 2, 4]
    (folder / "config.json").write_text(json.dumps(said))
    for number, (source, reason) in enumerate(
        [
            (folder, "target_layer_ids is [0, 2, 4], with this target it is [1, 2, 3]"),
            (tmp_path, "is neither an exported drafter (config.json) nor a complete checkpoint"),
        ]
    ):
        code = start(tmp_path / f"run{number}", monkeypatch, drafter__start_from=str(source))
        assert code == contract.EXIT_BAD_CONFIG
        assert (tmp_path / f"run{number}" / "prepared").exists() == (source == folder), "it is asked early"
        printed = capsys.readouterr().err
        assert f"configuration: drafter.start_from: {source}" in printed
        assert reason in printed
    wider = {"drafter__start_from": str(whole_run / contract.EXPORT), "drafter__intermediate_size": 48}
    assert start(tmp_path / "wider", monkeypatch, **wider) == contract.EXIT_BAD_CONFIG
    assert "not the published tensors" in capsys.readouterr().err


def test_resuming_as_another_run_is_refused(whole_run, tmp_path, monkeypatch, capsys):
    half = whole_run / contract.CHECKPOINTS / "step-2"
    code = start(tmp_path / "other", monkeypatch, resume_from=str(half), train__anchors=3)
    assert code == contract.EXIT_BAD_CONFIG
    assert "train.anchors: 4 then, 3 now" in capsys.readouterr().err


def test_an_incomplete_checkpoint_is_refused(whole_run, tmp_path, monkeypatch, capsys):
    broken = tmp_path / "step-2"
    broken.mkdir()
    (broken / WEIGHTS).write_bytes((whole_run / contract.CHECKPOINTS / "step-2" / WEIGHTS).read_bytes())
    assert start(tmp_path / "run", monkeypatch, resume_from=str(broken)) == contract.EXIT_BAD_CONFIG
    assert "not a complete checkpoint" in capsys.readouterr().err


def test_a_given_model_is_used(whole_run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "given"
    folder.mkdir()
    spec = contract.RunSpec(run_id="given", settings=TINY, model=str(whole_run / "prepared"))
    contract.write_json(folder / contract.RUN_SPEC, spec)
    monkeypatch.setenv(contract.RUN_DIR_VARIABLE, str(folder))
    monkeypatch.setattr(StopRequest, "install", lambda self: None)
    assert train.main([]) == contract.EXIT_OK
    assert "trained here" not in capsys.readouterr().out


def test_an_error_in_the_target_thread_is_the_runs_error(tmp_path, monkeypatch, capsys):
    real = feed.make_batch

    def failing(step, *rest):
        if step == 3:
            raise RuntimeError("the target broke at step 3")
        return real(step, *rest)

    monkeypatch.setattr(feed, "make_batch", failing)
    assert start(tmp_path / "run", monkeypatch) == contract.EXIT_FAILED
    text = capsys.readouterr().err
    assert "the target broke at step 3" in text
    assert "in failing" in text
    assert status(tmp_path / "run")["phase"] == "failed"


def test_a_loss_that_is_no_number_stops_with_a_named_error(tmp_path, monkeypatch, capsys):
    real = workers.step_loss

    def poisoned(batch, *rest):
        outcome = real(batch, *rest)
        return outcome if batch.step < 3 else dataclasses.replace(outcome, loss=outcome.loss * float("nan"))

    monkeypatch.setattr(workers, "step_loss", poisoned)
    assert start(tmp_path / "run", monkeypatch) == contract.EXIT_FAILED
    said = capsys.readouterr().err
    assert re.search(
        r"TrainingError: step 3: the loss is nan; rows \[\d+, \d+\]; last good checkpoint: \S*step-2", said
    )
    assert complete_steps(tmp_path / "run" / contract.CHECKPOINTS) == [2]


def ask_to_stop_at(monkeypatch, method: str, number: int) -> None:
    """Asks as a signal would, at the given call of a Progress method."""
    requests, calls = [], []
    monkeypatch.setattr(StopRequest, "__init__", lambda self: (setattr(self, "asked", False), requests.append(self))[0])
    real = getattr(Progress, method)

    def counting(self, *rest, **named):
        calls.append(1)
        if len(calls) == number:
            requests[0].asked = True
        return real(self, *rest, **named)

    monkeypatch.setattr(Progress, method, counting)


def test_a_stop_in_training_saves_the_step_and_leaves_with_its_own_code(tmp_path, monkeypatch):
    ask_to_stop_at(monkeypatch, "step", 3)
    folder = tmp_path / "run"
    assert start(folder, monkeypatch) == contract.EXIT_STOPPED_WITH_CHECKPOINT
    assert complete_steps(folder / contract.CHECKPOINTS) == [2, 3]
    assert status(folder)["phase"] == "stopping"
    assert not (folder / contract.RESULT).exists()


def test_a_stop_while_evaluating_waits_for_no_prompt_to_be_decoded(tmp_path, monkeypatch, capsys):
    ask_to_stop_at(monkeypatch, "goes_on", 3)
    changes = {"steps": 1, "evaluate__new_tokens": 100_000}
    assert start(tmp_path / "run", monkeypatch, **changes) == contract.EXIT_STOPPED_WITH_CHECKPOINT
    assert status(tmp_path / "run")["phase"] == "stopping"


def test_a_stop_before_training_says_that_nothing_was_saved(tmp_path, monkeypatch, capsys):
    ask_to_stop_at(monkeypatch, "detail", 2)
    folder = tmp_path / "run"
    assert start(folder, monkeypatch) == contract.EXIT_STOPPED_EMPTY_HANDED
    assert "nothing to resume from" in capsys.readouterr().out
    assert not (folder / contract.CHECKPOINTS).exists()
    assert not (folder / "prepared").exists()


def test_a_torch_nobody_tried_it_on_is_warned_of_in_log_runtime_and_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch, "__version__", "2.12.1+cu130")
    ask_to_stop_at(monkeypatch, "detail", 2)
    folder = tmp_path / "run"
    assert start(folder, monkeypatch) == contract.EXIT_STOPPED_EMPTY_HANDED
    assert "warning: torch 2.12.1+cu130 is none of those" in capsys.readouterr().out
    (warned,) = status(folder)["warnings"]
    assert json.loads((folder / contract.RUNTIME).read_text())["warnings"] == [warned]
    assert [fx_guard.untested(version) for version in ("2.11.0+cu128", "2.13.0")] == [None, None]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drafter__layers": 7}, "6 target layers give"),
        ({"device": "cuda"}, "device=cuda"),
        ({"target__learning_rate": 1e30}, "no training sequence has a response"),
    ],
)
def test_what_only_shows_when_it_is_tried_is_a_wrong_setting_too_and_leaves_nothing_half_made(
    tmp_path, monkeypatch, capsys, changes, said
):
    if "device" in changes and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert start(tmp_path / "run", monkeypatch, **changes) == contract.EXIT_BAD_CONFIG
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"configuration: .*{said}", line)
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_a_folder_without_a_run_spec_or_with_another_file_in_its_place_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(contract.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(StopRequest, "install", lambda self: None)
    assert train.main([]) == contract.EXIT_BAD_CONFIG
    (tmp_path / contract.RUN_SPEC).write_text("[")
    assert train.main([]) == contract.EXIT_BAD_CONFIG
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("the run's folder: ") for line in lines)
    assert len(lines) == 2


def test_a_bad_setting_ends_before_anything_is_made(tmp_path, monkeypatch, capsys):
    assert start(tmp_path / "run", monkeypatch, stpes=5) == contract.EXIT_BAD_CONFIG
    assert "unknown setting stpes; did you mean steps" in capsys.readouterr().err
    assert status(tmp_path / "run")["phase"] == "failed"


@pytest.mark.slow
def test_sigterm_to_the_real_process_saves_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {**TINY, "steps": 1_000_000, "checkpoint.every_steps": 1_000_000}
    contract.write_json(folder / contract.RUN_SPEC, contract.RunSpec(run_id="run", settings=settings))
    environment = {**os.environ, contract.RUN_DIR_VARIABLE: str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "train.py"], cwd=PAYLOAD, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while "step 3/" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == contract.EXIT_STOPPED_WITH_CHECKPOINT
    finally:
        process.kill()
        process.wait()
    assert len(complete_steps(folder / contract.CHECKPOINTS)) == 1


@pytest.mark.slow
def test_started_by_hand_it_makes_its_own_folder_and_its_last_line_is_the_acceptance_length(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != contract.RUN_DIR_VARIABLE}
    quick = [f"{name}={value}" for name, value in TINY.items()]
    done = subprocess.run(
        [sys.executable, str(PAYLOAD / "train.py"), "--set", *quick],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("acceptance length: ")
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / contract.RESULT).is_file()


def test_a_stuck_tracing_flag_is_told_once_and_in_the_counts(tmp_path, monkeypatch, capsys):
    """On a CPU nothing is planned to be compiled, and nothing is counted: here it is."""
    monkeypatch.setattr(loop, "compile_facts", lambda plan, seal: dataclasses.asdict(seal.counts()))
    monkeypatch.setattr(torch.fx._symbolic_trace, "_is_fx_tracing_flag", True)
    assert start(tmp_path / "run", monkeypatch) == contract.EXIT_OK
    assert status(tmp_path / "run")["compiled"]["tracing_stuck"] == 1
    assert status(tmp_path / "run")["warnings"] == [fx_guard.STUCK]
    printed = capsys.readouterr().out
    assert (printed.count(fx_guard.STUCK), printed.count("step 4/4")) == (1, 1)
