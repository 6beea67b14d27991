"""While a run goes on: a slowdown rises within minutes, and a healthy run never flickers. No test waits for a clock."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.diagnosis.case import Beside
from orchestrator.diagnosis.finding import CRITICAL, Finding
from orchestrator.diagnosis.pace import is_slow
from orchestrator.diagnosis.rising import FALLS_S, RISES_S, Rising
from orchestrator.operations.rising import ASKED_EVERY_S, Judge
from orchestrator.probes.pace import Pace, PaceSample
from orchestrator.reports.findings import findings_of
from orchestrator.reports.status import StatusReport, finding_words, render_status
from tests.unit import cases
from tests.unit.cases import NOW_S, RUN_ID, facts, metrics
from tests.unit.facts import TARGET

GOOD = 21_200.0


def finding(finding_id: str = "slow") -> Finding:
    return Finding(finding_id, CRITICAL, "it is", (), "why", "do")


def lines(*parts: tuple[float, float], every_s: float = 20.0, seed: int = 1, spread: float = 1.8) -> Pace:
    """(minutes, tokens a second), one after the other; each line's rate is up to `spread` times another's."""
    chance, samples, at_s = random.Random(seed), [], NOW_S
    for minutes, rate in parts:
        for _ in range(int(minutes * 60 / every_s)):
            at_s += every_s
            factor = spread ** (chance.random() - 0.5)
            samples.append(PaceSample(at_s, len(samples), rate * factor))
    return Pace(tuple(samples), "metrics.jsonl")


def slow_at(pace: Pace) -> list[bool]:
    """After each line."""
    told = []
    for number in range(len(pace.samples)):
        found = pace.measured(number)
        told.append(found is not None and is_slow(Pace(pace.samples[: number + 1], pace.source), found.per_s, GOOD))
    return told


@pytest.mark.parametrize("seed", range(20))
def test_healthy_windows_that_vary_by_1_8_are_never_slow(seed: int) -> None:
    assert not any(slow_at(lines((60, 20_000.0 + 75 * seed), seed=seed)))
    assert not any(slow_at(lines((30, 20_000.0 + 75 * seed), seed=seed, every_s=90.0)))


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_falls_is_slow_within_minutes_once_and_heals_once(seed: int) -> None:
    told = slow_at(lines((20, 20_500.0), (20, 12_800.0), (20, 20_500.0), seed=seed))
    changes = [n for n in range(1, len(told)) if told[n] != told[n - 1]]
    assert len(changes) == 2
    fell_s, healed_s = (20.0 * (n + 1) for n in changes)
    assert 1200 < fell_s < 1200 + 390 and 2400 < healed_s < 2400 + 420
    collapsed = slow_at(lines((20, 20_500.0), (20, 4_500.0), seed=seed))
    assert 1200 < 20.0 * (collapsed.index(True) + 1) < 1200 + 270


def test_a_pause_to_evaluate_is_no_slowdown() -> None:
    healthy = lines((20, 20_500.0))
    end_s = healthy.samples[-1].at_s or 0.0
    evaluated = PaceSample(end_s + 400, 61, 20_500.0 * 20 / 400)
    after = [PaceSample(end_s + 400 + 20 * n, 61 + n, 20_500.0) for n in range(1, 20)]
    assert not any(slow_at(Pace((*healthy.samples, evaluated, *after), "metrics.jsonl")))


def test_the_first_minutes_of_a_training_are_no_measure() -> None:
    start = lines((1, 2_000.0), (20, 20_500.0))
    assert start.measured(3) is None
    assert not any(slow_at(start))


def test_what_one_look_tells_has_to_last_and_to_stay_away() -> None:
    rising, shown = Rising(), []
    for second in range(600):
        here = 100 <= second < 300
        shown.append(bool(rising.take([finding()] if here else [], float(second))))
    assert [n for n in range(1, 600) if shown[n] != shown[n - 1]] == [100 + RISES_S, 299 + FALLS_S]


def test_what_comes_and_goes_is_never_shown_and_what_is_shown_does_not_flicker() -> None:
    rising = Rising()
    assert not any(rising.take([finding()] if second % 50 < 40 else [], float(second)) for second in range(1000))
    for second in range(1000, 1000 + int(RISES_S) + 1):
        rising.take([finding()], float(second))
    after = range(1100, 2000)
    assert all(rising.take([finding()] if second % 50 < 10 else [], float(second)) for second in after)


def test_what_a_log_says_is_shown_at_once() -> None:
    rising = Rising()
    assert [one.id for one in rising.take([finding("fx-race"), finding("slow")], 0.0)] == ["fx-race"]
    assert rising.take([], 1.0) == ()


def beside(**changes: Any) -> Beside:
    case = cases.case()
    about = {"cache_before": cases.cache(), "pace": metrics(20_700.0), "good_why": "marked good", "edited": ()}
    return Beside(run_id=RUN_ID, good=case.good, comparison=case.comparison, **{**about, **changes})


def report(**status: Any) -> StatusReport:
    return StatusReport(target="ct200", label="ct200", now_s=NOW_S, run=facts(**status).record, gpus=cases.gpus())


def test_a_status_tells_of_a_slow_run_and_nothing_of_a_healthy_one() -> None:
    assert findings_of(report(), TARGET, beside(), b"") == ()
    found = findings_of(report(), TARGET, beside(pace=metrics(12_800.0)), b"")
    assert [one.id for one in found] == ["slow"]
    text = render_status(replace(report(), findings=found))
    assert "finding" in text and "40 % less than the last good run" in text
    assert len(finding_words(replace(report(), findings=found))) == 1


def test_a_status_tells_of_what_the_log_says_of_a_run_that_goes_on() -> None:
    line = b"[rank0]:W torch._dynamo hit config.recompile_limit (8)\n"
    assert [one.id for one in findings_of(report(), TARGET, beside(), b"step 1 loss 2\n" + line)] == ["recompile-limit"]


def test_memory_that_comes_and_goes_before_the_watch_makes_a_slow_run_a_fallback() -> None:
    """A training that only prints its lines: nothing else tells of its memory."""

    async def ask(session: Any, target: Any, run: Any) -> Beside:
        return beside(pace=replace(metrics(4_500.0), source="log"))

    async def watched(swing: float) -> list[str]:
        now = [0.0]
        judge, shown = Judge(TARGET, lambda: now[0], ask), report()
        for second in range(100):
            now[0] = float(second)
            mib = 61_000 - int(61_000 * swing * (second % 4) / 3)
            told = replace(report(), gpus=tuple(replace(gpu, memory_used_mib=mib) for gpu in cases.gpus()))
            shown = judge.judged(told, b"", object())  # type: ignore[arg-type]
            await asyncio.sleep(0)
        return [one.id for one in shown.findings or ()]

    assert asyncio.run(watched(0.5)) == ["eager-fallback", "slow"]
    assert asyncio.run(watched(0.05)) == ["slow"]


def test_a_run_that_is_over_or_another_one_is_not_judged_by_it() -> None:
    over = StatusReport(target="ct200", label="ct200", run=facts(exit_record={"exit_code": 0}).record)
    assert findings_of(over, TARGET, beside(pace=metrics(5_000.0)), b"") == ()
    other = replace(beside(pace=metrics(5_000.0)), run_id="20261129-141500-ffff")
    assert findings_of(report(), TARGET, other, b"") == ()


def test_a_healthy_start_of_ten_minutes_is_no_finding() -> None:
    for minute in range(11):
        told = report(phase="compiling", compile_done=minute, compile_total=12, phase_started_at=NOW_S - 60 * minute)
        assert findings_of(told, TARGET, beside(pace=None, cache_before=cases.cache(None, None)), b"")[1:] == ()
        found = findings_of(told, TARGET, beside(pace=None, cache_before=cases.cache(None, None)), b"")
        assert not finding_words(replace(told, findings=found))


def test_a_watch_asks_now_and_then_and_shows_a_slow_run_after_a_while() -> None:
    now, asked = [0.0], []

    async def ask(session: Any, target: Any, run: Any) -> Beside:
        asked.append(now[0])
        return beside(pace=metrics(12_800.0))

    async def watched() -> list[tuple[str, ...]]:
        judge, shown = Judge(TARGET, lambda: now[0], ask), []
        for second in range(200):
            now[0] = float(second)
            told = judge.judged(report(), b"", object())  # type: ignore[arg-type]
            shown.append(tuple(one.id for one in told.findings or ()))
            await asyncio.sleep(0)
        return shown

    shown = asyncio.run(watched())
    assert shown[0] == () and shown[-1] == ("slow",)
    rose = shown.index(("slow",))
    assert RISES_S <= rose <= RISES_S + 10 and all(one == ("slow",) for one in shown[rose:])
    assert len(asked) == 200 // ASKED_EVERY_S + 1
