"""Whole runs on given data: recorded, measured on what was held out, and resumed when it has grown."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import contract
import pytest
import torch
import train
from checkpoint import load_checkpoint
from order import Chapter
from stopping import StopRequest
from tiny import TINY

DATA = {"data.held_out_every": 4, "data.max_tokens": 40, "checkpoint.every_steps": 1, "steps": 3}


def start(
    folder: Path,
    monkeypatch,
    data: Path | None,
    *,
    resume_from: Path | None = None,
    model: Path | None = None,
    **changes,
) -> int:
    folder.mkdir()
    settings = {**TINY, **DATA, **{name.replace("__", "."): value for name, value in changes.items()}}
    spec = contract.RunSpec(
        folder.name,
        settings=settings,
        data=data and str(data),
        model=model and str(model),
        resume_from=resume_from and str(resume_from),
    )
    contract.write_json(folder / contract.RUN_SPEC, spec)
    monkeypatch.setenv(contract.RUN_DIR_VARIABLE, str(folder))
    monkeypatch.setattr(StopRequest, "install", lambda self: None)
    return train.main([])


def write(path: Path, numbers: range) -> None:
    with path.open("a") as stream:
        for number in numbers:
            stream.write(json.dumps({"text": f"{number} bottles hang on the wall, {number} and {number} more"}) + "\n")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    write(path, range(8))
    return path


def test_a_run_on_given_data_records_it_and_is_measured_on_what_was_held_out(tmp_path, monkeypatch, data, capsys):
    assert start(tmp_path / "run", monkeypatch, data) == contract.EXIT_OK
    runtime = json.loads((tmp_path / "run" / contract.RUNTIME).read_text())
    assert runtime["data"]["files"][0]["name"] == "data.jsonl"
    assert runtime["data"]["rows"] == {"read": 8, "made": 8, "held_out": 2, "left_out": 0}
    result = json.loads((tmp_path / "run" / contract.RESULT).read_text())
    assert (result["prompts"], result["lossless"]) == (2, True)
    assert result["acceptance_length_unseen_family"] is None
    assert "8 samples read, 8 rows made (2 held out), 0 left out" in capsys.readouterr().out


def test_a_run_resumes_on_grown_data_with_its_cursor_right_and_refuses_other_data(tmp_path, monkeypatch, data, capsys):
    assert start(tmp_path / "first", monkeypatch, data) == contract.EXIT_OK
    half = tmp_path / "first" / contract.CHECKPOINTS / "step-2"
    before = (tmp_path / "first" / "prepared" / "data.json").read_text()
    write(data, range(8, 20))
    assert start(tmp_path / "grown", monkeypatch, data, resume_from=half) == contract.EXIT_OK
    last = load_checkpoint(tmp_path / "grown" / contract.CHECKPOINTS / "step-3", torch.device("cpu"))
    assert last.chapters == (Chapter(0, 6), Chapter(4, 15))
    assert "12 samples read, 12 rows made (3 held out)" in capsys.readouterr().out
    assert (tmp_path / "first" / "prepared" / "data.json").read_text() == before
    data.write_text(data.read_text().replace("bottles", "lanterns"))
    assert start(tmp_path / "other", monkeypatch, data, resume_from=half) == contract.EXIT_BAD_CONFIG
    assert "is not the data the checkpoint was trained on: data.jsonl is not what it was" in capsys.readouterr().err


def test_a_run_resumes_only_with_the_target_and_the_kind_of_data_it_learned_from(tmp_path, monkeypatch, data, capsys):
    """By hand `--resume` is easily given without `--data` or `--model`, and rows would be cut to another width."""
    assert start(tmp_path / "first", monkeypatch, data, steps=1) == contract.EXIT_OK
    last = tmp_path / "first" / contract.CHECKPOINTS / "step-1"

    def refused(name: str, *given, **changes) -> str:
        assert start(tmp_path / name, monkeypatch, *given, resume_from=last, **changes) == contract.EXIT_BAD_CONFIG
        assert not (tmp_path / name / "prepared").exists()
        return capsys.readouterr().err

    assert re.search(r"trained on data \(\S+data.jsonl\), and this run names none", refused("bare", None))
    model = tmp_path / "model"
    shutil.copytree(tmp_path / "first" / "prepared", model)
    with (model / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\xff")
    assert f"with another target: {model} is not that one" in refused("other", data, model=model)
    shutil.rmtree(tmp_path / "first" / "prepared")
    assert "first/prepared, which is gone" in refused("gone", data)


def test_a_bad_line_stops_a_strict_run_before_it_begins(tmp_path, monkeypatch, data, capsys):
    with data.open("a") as stream:
        stream.write("{\n")
    assert start(tmp_path / "run", monkeypatch, data, data__strict=True) == contract.EXIT_BAD_CONFIG
    assert "data: data.jsonl:9: not JSON" in capsys.readouterr().err
