"""What the trainer says of itself in status.json."""

from __future__ import annotations

import json
from pathlib import Path

import contract
from progress import Progress


def status(folder: Path) -> dict[str, object]:
    record: dict[str, object] = json.loads((folder / contract.STATUS).read_text())
    return record


def test_compiling_is_counted_from_when_it_began_and_then_over(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.phase("loading")
    progress.compiling(0, 8)
    first = status(tmp_path)
    progress.compiling(1, 8)
    second = status(tmp_path)
    assert (second["phase"], second["compile_done"], second["compile_total"]) == ("compiling", 1, 8)
    assert second["phase_started_at"] == first["phase_started_at"]
    progress.start_training(0, 700)
    assert (status(tmp_path)["phase"], status(tmp_path)["step"]) == ("training", 0)


def test_a_status_of_an_earlier_payload_is_still_one(tmp_path: Path) -> None:
    contract.write_json(tmp_path / contract.STATUS, {"phase": "training", "step": 3, "schema": 1})
    assert contract.Status(**status(tmp_path)).compile_done is None  # type: ignore[arg-type]
