"""Real answers of `orch status --json` are as the published schema says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import PROJECT, Place, said
from tests.status_schema import problems
from tests.waiting import eventually

numbers = itertools.count(1)
SCHEMA = json.loads((PROJECT / "docs" / "orch.status.2.schema.json").read_text())


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"j{next(numbers)}")
    yield place
    place.clean()


def test_every_state_of_a_target(place: Place) -> None:
    seen = []

    def look() -> str:
        record = json.loads(place.ok("status", "--json"))
        assert problems(record, SCHEMA) == []
        seen.append(record["run"] and record["run"]["state"]["phase"])
        return str(seen[-1])

    look()
    place.ok("deploy")
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("launch")
    look()
    place.ok("stop")
    place.write(command=["python3", "foreign.py", "2", "0.01", "fail"])
    assert place.orch("launch", "--wait", "end").returncode == 11
    look()
    assert seen == [None, "running", "ended"]


def test_a_watched_line(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    place.ok("launch")
    with (place.folder / "watched").open("wb") as stream:
        client = place.popen("status", "--watch", "--json", stdout=stream)
        try:
            eventually(lambda: (place.folder / "watched").read_bytes().count(b"\n") >= 3, "three lines")
        finally:
            client.terminate()
            client.wait(20)
    place.ok("stop")
    for line in (place.folder / "watched").read_text().splitlines()[:3]:
        assert problems(json.loads(line), SCHEMA) == []


def test_a_run_that_ends_well_before_the_step_that_is_waited_for(place: Place) -> None:
    place.ok("deploy")
    done = place.orch("launch", "--wait", "step:9")
    assert done.returncode == 12
    assert "ended before step 9, without an error" in said(done) and "its last step was 3" in said(done)
    assert "got there and ended well" in place.ok("launch", "--wait", "step:3")
