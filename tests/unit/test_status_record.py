"""What `orch status --json` says. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from orchestrator.reports.status import (
    CacheFact,
    Failure,
    StatusReport,
    failure_text,
    how_it_goes,
    render_status,
    status_record,
)
from tests.unit.cases import facts

REPORT = StatusReport(target="ct200", label="ct200", now_s=1.5)


def test_json_holds_no_word_that_strict_readers_refuse() -> None:
    record = status_record(replace(REPORT, now_s=math.nan, disk_free_bytes=7))
    assert json.loads(json.dumps(record, allow_nan=False))["now_s"] is None
    assert record["disk_free_bytes"] == 7


def test_the_cache_is_a_line_that_never_claims_more_than_was_counted() -> None:
    def line(cache: CacheFact) -> str:
        (found,) = [line for line in render_status(replace(REPORT, cache=cache)).splitlines() if "cache" in line]
        return " ".join(found.split()[1:])

    assert line(CacheFact(353_100_000, 4120)) == "353 MB, 4120 compiled graphs"
    assert line(CacheFact(925_000, 1, complete=False)) == "at least 925 kB, 1 compiled graph"
    assert line(CacheFact(7, None)) == "7 B" and line(CacheFact(None, None)) == "empty"


def test_a_line_without_an_end_does_not_fill_the_screen() -> None:
    report = replace(REPORT, last_lines=("x" * 16_000, "end"))
    assert render_status(report).splitlines()[-2:] == ["  | " + "x" * 399 + "…", "  | end"]
    assert status_record(report)["last_lines"] == ["x" * 16_000, "end"], "a program gets all of it"


def test_a_failure_of_which_nobody_recorded_when_is_not_a_dash_ago() -> None:
    unknown = Failure("r1", "nobody recorded how it ended", None, None, None)
    assert failure_text(unknown, 100.0) == "r1: nobody recorded how it ended"
    assert failure_text(replace(unknown, ended_at=900.0), 100.0) == "r1: nobody recorded how it ended", (
        "a clock set back"
    )
    assert failure_text(replace(unknown, ended_at=90.0), 100.0) == "r1, 10 s ago: nobody recorded how it ended"


def test_an_end_that_lies_ahead_of_the_clock_is_not_a_dash_ago() -> None:
    ended = {"exit_code": 0, "started_at": 190.0, "ended_at": 200.0}
    run = facts(exit_record=ended).record
    assert how_it_goes(replace(REPORT, now_s=260.0, run=run)) == ["ended well", "after 10 s", "1 min 0 s ago"]
    assert how_it_goes(replace(REPORT, now_s=100.0, run=run)) == ["ended well", "after 10 s"]
    back = facts(exit_record={**ended, "ended_at": 90.0}).record
    assert how_it_goes(replace(REPORT, now_s=100.0, run=back)) == ["ended well", "10 s ago"]
