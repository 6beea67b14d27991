"""What benches/eight_gpus.py reads from a run's log, and which rows it begins."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benches import eight_gpus

LOG = """\
compiling 1 of 2: attention 1 x 32768 over 40000 with gradients on cuda:5
compiling 2 of 2: attention 1 x 32768 over 40000 with gradients on cuda:6
compiled by process 0 of the drafters: 1 graphs, 0 found in the cache, 2 not
compiled by process 1 of the drafters: 1 graphs, 2 found in the cache, 0 not
"""


def test_compilations_are_told_apart_by_device_and_by_process() -> None:
    assert eight_gpus.compilations(LOG) == {
        "drafter 0": "1 graphs, 0 hits, 2 misses",
        "drafter 1": "1 graphs, 2 hits, 0 misses",
        "cuda:5": "1 planned",
        "cuda:6": "1 planned",
    }


def test_the_use_of_gpus_is_a_mean_over_those_of_a_role() -> None:
    use = eight_gpus.GpuUse()
    use._seen += [[100.0, 50.0, 10.0], [100.0, 70.0, 30.0], [0.0]]
    assert use.by_role((2, 1)) == {"targets": 80.0, "drafters": 20.0}


def test_known_rows_are_skipped_none_begins_too_late_and_one_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def row(name: str, needs_s: float = 1.0) -> eight_gpus.Row:
        def work() -> dict[str, Any]:
            begun.append(name)
            if name == "broken":
                raise ValueError("no such device")
            return {"seen": 1}

        return eight_gpus.Row("cold", name, needs_s, work)

    rows = [row("known"), row("new"), row("long", 1e6), row("broken")]
    results = tmp_path / "results"
    results.write_text(json.dumps({"table": "cold", "row": "known", "tiny": True}) + "\n")
    monkeypatch.setattr(eight_gpus, "rows_of", lambda bench: rows)
    monkeypatch.setattr(eight_gpus, "prepare", lambda bench: None)
    monkeypatch.setattr(sys, "argv", ["eight", str(tmp_path / "f"), "--results", str(results), "--gpus", "0", "--tiny"])
    eight_gpus.main()
    assert begun == ["new", "broken"]
    assert [one["row"] for one in eight_gpus.read_results(results)] == ["known", "new"]
    said = capsys.readouterr().out
    assert "not begun" in said and "no such device" in said
    eight_gpus.main()
    assert begun == ["new", "broken", "broken"]
