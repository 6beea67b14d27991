"""`orch runs` and `orch runs show` on a lab, with a script that knows nothing of orch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"o{next(numbers)}")
    yield place
    place.clean()


def test_runs_are_listed_and_shown_whole(place: Place) -> None:
    assert "no runs" in place.ok("runs")
    assert place.orch("runs", "show", "last").returncode == 2
    place.ok("deploy")
    place.ok("launch", "--wait", "end", "--set", "steps=3")
    place.write(command=["python3", "foreign.py", "2", "0.01", "fail"])
    assert place.orch("launch", "--wait", "end").returncode == 11

    listed = json.loads(place.ok("runs", "--json"))
    failed, good = listed["runs"]
    assert (listed["schema"], listed["total"], listed["target"]) == ("orch.runs/1", 2, "ct200")
    assert (good["outcome"], failed["outcome"]) == ("ended well", "failed: exit code 1")
    assert (good["step"], good["throughput"]["rate"]["per_s"], failed["step"]) == (3, 12500.0, 1)
    assert good["release"] == failed["release"] and len(good["release"]) == 64
    text = place.ok("runs", "-n", "1")
    assert failed["run_id"] in text and good["run_id"] not in text and "1 more: orch runs -n 2" in text

    shown = place.ok("runs", "show", good["run_id"][:-2])
    assert shown.startswith(f"{good['run_id']} on ") and "ended well, after" in shown
    for expected in ("steps=3", "12.5 Ktok/s", "3, 12.5", good["release"][:12], "launch done by"):
        assert expected in shown
    whole = json.loads(place.ok("runs", "show", "last", "--json"))
    assert (whole["schema"], whole["run"]["run_id"]) == ("orch.run/1", failed["run_id"])
    fingerprint = whole["fingerprint"]
    assert fingerprint["schema"] == "orch.fingerprint/2" and set(fingerprint["unknown"]) <= {"container"}
    assert fingerprint["identity"]["release"]["tree_hash"] == failed["release"]
    assert fingerprint["identity"]["python"]["version"] and fingerprint["identity"]["packages"] is not None
    assert [(entry["op"], entry["phase"]) for entry in whole["journal"]] == [("launch", "begin"), ("launch", "done")]


def test_what_is_not_one_run_is_refused_with_what_there_is(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    run_id = place.status()["run"]["run_id"]
    done = place.orch("runs", "show", "1999")
    assert done.returncode == 2 and run_id in said(done)
    assert place.orch("runs", "show").returncode == 2


@pytest.fixture
def real_place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"o{next(numbers)}")
    yield place
    place.clean()


@pytest.mark.real_lab
def test_what_was_seen_is_shown_when_the_target_cannot_be_asked(real_place: Place) -> None:
    place = real_place
    place.ok("deploy")
    for rate in ("first", "second"):
        place.ok("launch", "--wait", "end", "--set", f"name={rate}")
    listed = json.loads(place.ok("runs", "--json"))
    newer, older = (run["run_id"] for run in listed["runs"])
    assert listed["last_good"] == newer and listed["runs"][0]["shape"]["payload"] == "foreign"
    assert place.ok("runs", "mark", older, "good", "--note", "warm") and place.ok("runs", "note", older, "the", "best")
    assert "marked good, last good" in place.ok("runs", "--good", "--sort", "took")
    assert "the best" in place.ok("runs", "show", older)
    assert newer not in place.ok("runs", "--outcome", "failed") and newer in place.ok("runs", "--since", "1h")

    place.lab.stop_container()
    try:
        done = place.orch("runs", "-n", "1")
    finally:
        place.lab.start_container()
    assert done.returncode == 7 and newer in done.stdout.decode() and "from this machine's index" in said(done)
    for moved in (older, newer):
        place.inside("mv", f"{place.base}/runs/{moved}", f"{place.base}/away")
        assert "1 more are only in this machine's index" in place.ok("runs") and moved in place.ok("runs", "--gone")
        place.inside("mv", f"{place.base}/away", f"{place.base}/runs/{moved}")
    assert "index" not in place.ok("runs")
    place.inside("mv", f"{place.base}/runs/{newer}", f"{place.base}/away")
    text = place.ok("runs", "--sync")
    assert "in the index: 1; read anew: 1" in text and newer not in text
    (Path(place.lab.record.folder) / "data" / "orch" / "runs.sqlite3").write_bytes(b"SQLite format 3\0" + b"x" * 200)
    done = place.orch("runs")
    assert done.returncode == 0 and "was damaged" in done.stderr.decode() and older in done.stdout.decode()
