"""The JSON Schema of `orch status --json` is what the facts are; the page names every part of it."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

from orchestrator.probes.training import RunPhase
from orchestrator.reports.status import SCHEMA, StatusReport, status_record
from tests.status_schema import problems, status_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"
KEPT = json.loads((DOCS / "orch.status.2.schema.json").read_text())


def test_the_file_is_made_from_the_facts() -> None:
    assert status_schema() == KEPT, "python -m tests.status_schema > docs/orch.status.2.schema.json"
    assert SCHEMA == "orch.status/2", "another number, another file"


def test_the_page_names_every_part_and_phase() -> None:
    named = set(re.findall(r"`([^`]+)`", (DOCS / "status-json.md").read_text()))
    assert set(KEPT["properties"]) <= named
    assert {phase.value for phase in RunPhase} <= named


def test_what_is_not_so_is_found() -> None:
    record = status_record(StatusReport(target="ct200", label="ct200", last_lines=("x",)))
    assert problems(record, KEPT) == []
    for change in (
        {"schema": "orch.status/1"},
        {"target": None},
        {"now_s": "5"},
        {"disk_free_bytes": 1.5},
        {"last_lines": [1]},
        {"gpus": [{}]},
        {"cache": {"bytes": 1}},
        {"more": 1},
        {"link": {**record["link"], "connected": 1}},
    ):
        assert problems({**copy.deepcopy(record), **change}, KEPT), change
    del record["run"]
    assert problems(record, KEPT) == ["$: run is missing"]
