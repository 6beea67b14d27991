"""Whether a cache holds what a run will ask for, and when a warm-up is done. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.cache_enough import NOTHING_KNOWN, Enough, Plan, devices_needed, judge_enough, parse_plan
from orchestrator.ledger.cache_fit import judge
from orchestrator.probes.cache_census import Census, Devices, parse_census
from orchestrator.reports.warmup import WarmupPass, WarmupReport, render_warmup, warmup_record, why_not

PLAN = Plan("r1", {"cuda:5": 6, "cuda:6": 6, "cuda:7": 6}, alike=True)
PASS = WarmupPass("r2", 30.0, 0, 0, 0, complete=True)


def holding(graphs: dict[str, int], unknown: int = 0, complete: bool = True) -> Census:
    told = {"graphs": graphs, "unknown": unknown, "complete": complete}
    return parse_census({"devices": told, "folders": {}, "kinds": {}})


def test_one_kernel_at_one_shape_on_one_gpu_lacks_all_the_rest() -> None:
    found = judge_enough(holding({"cuda:5": 1}), PLAN, None, None)
    assert found.verdict is False
    assert found.lacking == (
        "cuda:5: 1 of the 6 graphs that the plan needs",
        "cuda:6: none of the 6 graphs that the plan needs",
        "cuda:7: none of the 6 graphs that the plan needs",
    )


def test_what_one_process_a_device_compiled_on_cuda_0_serves_a_plan_of_cuda_0_only() -> None:
    every = holding({"cuda:0": 6})
    assert judge_enough(every, Plan("r1", {"cuda:0": 6}, alike=True), None, None).verdict is True
    assert len(judge_enough(every, PLAN, None, None).lacking) == 3


def test_a_warm_up_whose_caches_are_off_proves_nothing() -> None:
    """TORCHINDUCTOR_FORCE_DISABLE_CACHES=1: nothing is missed because nothing is looked up."""
    off = WarmupReport("ct200", "ct200", (PASS, replace(PASS, hits=0)), NOTHING_KNOWN, 0)
    assert not off.proven and "looked nothing up" in why_not(off)[0] and "DISABLE_CACHES" in render_warmup(off)
    assert WarmupReport("ct200", "ct200", (replace(PASS, hits=6),), NOTHING_KNOWN, 6).done


def test_without_a_plan_the_last_good_run_tells() -> None:
    good = Devices({"cuda:0": 20, "cuda:1": 20}, 0, complete=True)
    found = judge_enough(holding({"cuda:0": 6}), None, "r0", good)
    assert found.lacking == (
        "cuda:0: 6 of the 20 graphs of the last good run",
        "cuda:1: none of the 20 graphs of the last good run",
    )
    # Its cache may hold what former code left.
    assert judge_enough(holding({"cuda:0": 11, "cuda:1": 10}), None, "r0", good).verdict is True


def test_without_its_snapshot_the_last_good_run_tells_how_many_graphs_there_were() -> None:
    kinds = {"fxgraph": {"entries": 6, "files": 6, "bytes": 925_000}}
    devices = {"graphs": {"cuda:5": 6}, "unknown": 0, "complete": True}
    census = parse_census({"devices": devices, "folders": {}, "kinds": kinds})
    found = judge_enough(census, None, "r0", None, 4120)
    assert found.lacking == ("6 of the 4120 graphs of the last good run",)
    assert judge_enough(census, None, "r0", None, 12).verdict is True


def test_a_plan_of_other_settings_is_a_hint() -> None:
    other = replace(PLAN, alike=False)
    found = judge_enough(holding({"cuda:5": 3, "cuda:6": 3, "cuda:7": 3}), other, None, None)
    assert found.verdict is True and found.against == ("the plan of run r1, which had other settings",)
    assert judge_enough(holding({"cuda:5": 3, "cuda:6": 3, "cuda:7": 2}), other, None, None).verdict is False


@pytest.mark.parametrize("census", [holding({"cuda:5": 1}, complete=False), holding({"cuda:5": 1}, unknown=17)])
def test_what_was_not_read_is_no_lack(census: Census) -> None:
    assert judge_enough(census, PLAN, None, None).lacking == ()
    assert judge_enough(holding({}), None, None, None) == NOTHING_KNOWN


def test_a_seed_must_serve_the_devices_of_the_plan_and_without_one_those_of_the_last_good_run() -> None:
    of_good = Devices({"cuda:0": 20}, 0, complete=True)
    needed = devices_needed(PLAN, of_good)
    fit = judge([], Devices({"cuda:0": 6}, 0, complete=True), None, needed)
    assert [(one.field, one.kept, one.now) for one in fit.hard] == [("devices", "cuda:0", "cuda:5, cuda:6, cuda:7")]
    assert devices_needed(replace(PLAN, alike=False), of_good) is of_good is devices_needed(None, of_good)


def test_a_plan_is_read_as_far_as_it_makes_sense() -> None:
    told = {"run_id": "r", "graphs": {"cuda:0": 4, "cpu": 0, "cuda:1": "x"}, "alike": True}
    assert parse_plan(told) == Plan("r", {"cuda:0": 4}, alike=True)
    assert parse_plan({"run_id": "r", "graphs": {}}) is None and parse_plan(None) is None


def report(*passes: WarmupPass, enough: Enough = NOTHING_KNOWN) -> WarmupReport:
    return WarmupReport("ct200", "ct200", passes, enough, 6)


def test_a_pass_proves_it_only_with_nothing_missed_and_nothing_new() -> None:
    assert report(PASS).done and report(replace(PASS, misses=None)).done
    for change in ({"misses": 1}, {"new_files": 3}, {"new_files": None}, {"complete": False}):
        again = report(replace(PASS, run_id="r1", misses=6, new_files=120), replace(PASS, **change))
        assert not again.done and why_not(again)
    said = why_not(report(replace(PASS, misses=2, new_files=40, new_graphs=2)))
    assert said == ["in a fresh process the second time still: warm-up run r2: 2 misses, 40 new files (2 graphs), 30 s"]


def test_proven_and_not_enough_is_not_done() -> None:
    poor = report(PASS, enough=Enough(False, ("cuda:6: none of the 6 graphs that the plan needs",), ("the plan",)))
    assert poor.proven and not poor.done
    assert "NOT ENOUGH: cuda:6: none of the 6 graphs" in render_warmup(poor)
    assert why_not(poor) == ["the cache lacks cuda:6: none of the 6 graphs that the plan needs"]
    assert warmup_record(poor)["done"] is False and warmup_record(poor)["proven"] is True
    assert "is not known" in render_warmup(report(PASS))
