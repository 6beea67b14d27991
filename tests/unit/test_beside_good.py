"""A running training's rate beside the last good run's: in a status, live, in the table of targets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.diagnosis.case import Beside
from orchestrator.operations.rising import Judge
from orchestrator.probes.pace import Pace
from orchestrator.probes.rate import Rate
from orchestrator.probes.throughput import Throughput
from orchestrator.reports.findings import beside_good
from orchestrator.reports.status import StatusReport, render_status, status_record
from orchestrator.reports.watch_frame import render_frame
from orchestrator.reports.watch_table import Watched, render_table
from tests.unit import cases
from tests.unit.cases import NOW_S, RUN_ID, facts, metrics
from tests.unit.facts import TARGET


def said(per_s: float, counted: str = "tok") -> Throughput:
    rate = Rate(per_s, counted)
    return Throughput("log", 1200, 3000, 1.5, rate, rate, 600.0)


def report(throughput: Throughput | None = None, **status: Any) -> StatusReport:
    return StatusReport(
        target="ct200", label="ct200", now_s=NOW_S, run=facts(**status).record, throughput=throughput or said(12_800.0)
    )


def beside(pace: Pace | None, good_pace: Pace | None = None, **good: Any) -> Beside:
    than = facts(cases.GOOD_ID, exit_record={"exit_code": 0}, pace=good_pace or metrics(21_500.0, wobble=0.0), **good)
    about = {"cache_before": cases.cache(), "comparison": None, "edited": ()}
    return Beside(run_id=RUN_ID, pace=pace, good=than, good_why="marked good", **about)


def judged(pace: Pace | None, throughput: Throughput | None = None) -> StatusReport:
    told = report(throughput)
    return replace(told, beside_good=beside_good(told, TARGET, beside(pace), b""))


def test_a_slow_run_is_said_in_per_cent_of_the_last_good_one() -> None:
    told = judged(metrics(12_800.0, wobble=0.0))
    words = "12.8 Ktok/s (60 % of the last good run's 21.5)"
    assert words in render_status(told)
    assert any(words in line.text for line in render_frame(told, width=120, height=40))
    table = render_table([Watched("ct200", told)], width=160, height=None)
    assert any("12.8 Ktok/s, 60 %" in line.text for line in table)
    about = status_record(told)["beside_good"]
    assert about["run_id"] == cases.GOOD_ID and about["why"] == "marked good"
    assert about["percent"] == pytest.approx(59.5, abs=0.1)


@pytest.mark.parametrize("pace", [metrics(12_800.0, minutes=1.0), None])
def test_before_its_long_window_is_full_nothing_is_compared(pace: Pace | None) -> None:
    told = report(phase="training", phase_started_at=NOW_S - 60)
    about = beside_good(told, TARGET, beside(pace), b"")
    assert about is not None and about.good_per_s == pytest.approx(21_500.0) and about.percent is None
    assert "last good" not in render_status(replace(told, beside_good=about))


def test_where_units_differ_in_size_both_are_said() -> None:
    told = judged(metrics(430.0, wobble=0.0), said(430.0))
    assert "430 tok/s (2 % of the last good run's 21.5 Ktok/s)" in render_status(told)


def test_another_runs_answer_and_no_good_run_compare_nothing() -> None:
    told = report()
    assert beside_good(told, TARGET, replace(beside(None), run_id="another"), b"") is None
    assert beside_good(told, TARGET, replace(beside(None), good=None), b"") is None
    assert beside_good(told, TARGET, None, b"") is None


def test_a_watch_shows_it_once_it_was_asked_and_forgets_it_with_the_run() -> None:
    async def ask(session: Any, target: Any, run: Any) -> Beside:
        return beside(metrics(12_800.0))

    async def watched() -> list[StatusReport]:
        now = [0.0]
        judge, shown = Judge(TARGET, lambda: now[0], ask), []
        for second in range(20):
            now[0] = float(second)
            told = report() if second < 15 else replace(report(), run=facts(exit_record={"exit_code": 0}).record)
            shown.append(judge.judged(told, b"", object()))  # type: ignore[arg-type]
            await asyncio.sleep(0)
        return shown

    shown = [one.beside_good is not None for one in asyncio.run(watched())]
    assert not shown[0] and all(shown[2:15]) and not any(shown[15:])
