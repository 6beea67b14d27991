"""How loss and throughput went, in a line, whatever was said of them."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.rate import Rate
from orchestrator.reports.status import CacheFact, StatusReport
from orchestrator.reports.trend import BARS, POINTS, Series, Trend, sparkline
from tests.unit.test_watch_frame import NOW, REPORT, run


def at(step: int, loss: float, **changes: object) -> StatusReport:
    assert REPORT.throughput is not None
    said = replace(REPORT.throughput, step=step, loss=loss, rate=Rate(1000.0 + step, "tok"))
    return replace(REPORT, throughput=said, last_lines=(), **changes)


def test_each_step_is_one_point_and_a_long_watch_stays_small() -> None:
    trend = Trend()
    for step in range(1, 1001):
        trend.take(at(step, 1 / step))
        trend.take(at(step, 1 / step))
    points = trend.loss.points
    assert len(points) < POINTS and points[0].step == 1 and sum(point.count for point in points) == 1000
    assert math.isclose(sum(point.total for point in points), sum(1 / step for step in range(1, 1001)))
    assert len({point.count for point in points[:-1]}) == 1, "each stands for as many steps"
    means = [point.mean for point in points]
    assert means == sorted(means, reverse=True)
    assert sparkline(means, 10)[-1] == BARS[0] and len(sparkline(means, 10)) == 10


def test_what_was_printed_before_the_watch_counts_and_another_run_begins_anew() -> None:
    trend = Trend()
    lines = ("step 1 loss 3.5 10.0 Ktok/s", "unrelated", "step 2 loss 2.5 12.0 Ktok/s")
    trend.take(replace(at(3, 1.5), last_lines=lines))
    assert [point.mean for point in trend.loss.points] == [3.5, 2.5, 1.5]
    assert [point.mean for point in trend.rate.points] == [10_000.0, 12_000.0, 1003.0]
    other = run()
    trend.take(at(1, 9.0, run=replace(other, run_id="another")))
    assert [point.mean for point in trend.loss.points] == [9.0]


def test_a_loss_that_is_no_number_or_goes_back_draws_nothing() -> None:
    series = Series()
    for step, value in [(1, math.nan), (2, 1.0), (2, 5.0), (1, 5.0), (3, math.inf), (4, 2.0)]:
        series.add(step, value)
    assert [(point.step, point.mean) for point in series.points] == [(2, 1.0), (4, 2.0)]


def test_the_cache_grows_since_the_watch_began() -> None:
    trend = Trend()
    trend.take(replace(REPORT, cache=CacheFact(1000, 3, 5.0)))
    assert (trend.cache_grown_bytes, trend.cache_since_s) == (0, 5.0)
    trend.take(replace(REPORT, now_s=NOW + 60, cache=CacheFact(5000, 4, 2.0)))
    assert (trend.cache_grown_bytes, trend.cache_since_s) == (4000, 65.0)
    trend.take(replace(REPORT, now_s=NOW + 70, cache=CacheFact(9000, 4, 2.0, complete=False)))
    assert trend.cache_grown_bytes == 4000, "what was not counted to its end says nothing of growth"


def test_bars() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == BARS
    assert sparkline([5, 5, 5], 8) == BARS[0] * 3 and sparkline([], 8) == "" and sparkline([1.0], 0) == ""


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=80), st.integers(0, 60))
def test_any_numbers_make_so_many_bars(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(len(values), width) and set(drawn) <= set(BARS)
