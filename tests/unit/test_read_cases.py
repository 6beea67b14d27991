"""`orch read`, case by case: tests/data/read/KIND/NAME.txt is the input, expected.json says what must be read.

An expectation is a part of the reading with the spans left out: an object's other keys are free, a list is whole.
`judged` says why a reading differs from what the case's source, or whoever collected it, says of it.
"""

import json
from pathlib import Path

import pytest

from orchestrator.operations.readers import READERS, read_as
from orchestrator.reports.read import plain_values, read_record
from tests.reading import misfits, unplaced

FOLDER = Path(__file__).parent.parent / "data" / "read"
CASES = [
    pytest.param(path.parent.name, name, case, id=f"{path.parent.name}/{name}")
    for path in sorted(FOLDER.glob("*/expected.json"))
    for name, case in json.loads(path.read_text("utf-8")).items()
]


def read_case(kind, name, case):
    text = (FOLDER / kind / name).read_bytes().decode("utf-8", "surrogateescape")
    reading = read_as(kind, text, case.get("fields"))
    return text, reading, read_record(kind, text, reading)


@pytest.mark.parametrize(("kind", "name", "case"), CASES)
def test_case(kind, name, case):
    text, reading, record = read_case(kind, name, case)
    assert misfits(case["reading"], plain_values(record)["reading"]) == []
    assert unplaced(reading, text) == []


def test_every_input_has_an_expectation_and_a_source():
    inputs = {f"{path.parent.name}/{path.name}" for path in FOLDER.glob("*/*") if path.name != "expected.json"}
    assert inputs == {f"{case.values[0]}/{case.values[1]}" for case in CASES}
    assert [case.id for case in CASES if not case.values[2].get("source")] == []


def test_every_kind_has_cases():
    assert {case.values[0] for case in CASES} == set(READERS)
