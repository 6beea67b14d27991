"""Whether the live compile cache holds what the next run will ask for.

Rule: pure; by count, so enough is no proof: that is a second warm-up with nothing new. What is lacking is certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.cache_census import Census, Devices, graphs_of
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_bool, as_int, as_mapping, as_str

PART = 0.5
"""Of the last good run's graphs: a cache that serves grows, and keeps what former code and settings left."""


@dataclass(frozen=True)
class Plan:
    """What a payload said that it compiles, in runtime.json of a run."""

    run_id: str
    graphs: Mapping[str, int]
    """Device as the process sees it -> the least number of compiled graphs: shapes x forward and backward."""
    alike: bool
    """That run had the settings and devices that a launch has now."""


@dataclass(frozen=True)
class Enough:
    verdict: bool | None
    """None: there is nothing to hold it against."""
    lacking: tuple[str, ...]
    against: tuple[str, ...]
    """What it was held against, in words."""


NOTHING_KNOWN = Enough(None, (), ())


def parse_plan(told: object) -> Plan | None:
    raw = as_mapping(told)
    run_id = as_str(raw.get("run_id"))
    counted = {one_line(name, 40): as_int(count) for name, count in as_mapping(raw.get("graphs")).items()}
    graphs = {name: count for name, count in counted.items() if count is not None and count > 0}
    return Plan(run_id, graphs, as_bool(raw.get("alike")) is True) if run_id and graphs else None


def devices_needed(plan: Plan | None, good: Devices | None) -> Devices | None:
    """Those for which a seed must hold graphs: of the plan of a run like the next one, else of the last good run."""
    if plan is not None and plan.alike:
        return Devices(plan.graphs, 0, complete=True)
    return good


def judge_enough(
    census: Census, plan: Plan | None, good_run: str | None, good: Devices | None, good_graphs: int | None = None
) -> Enough:
    """good: of the snapshot that goes with the last good run; good_graphs: what the cache held at that run's end, for
    where there is no such snapshot."""
    holds = census.devices
    if holds is None or not holds.complete or not census.complete:
        return NOTHING_KNOWN
    lacking: list[str] = []
    against: list[str] = []
    if plan is not None:
        against.append(f"the plan of run {plan.run_id}" + ("" if plan.alike else ", which had other settings"))
        lacking += _less(holds, plan.graphs, "that the plan needs", plan.alike or None)
    if good is not None and good.complete and good.graphs:
        against.append(f"the last good run {good_run}")
        lacking += _less(holds, good.graphs, "of the last good run", None)
    elif good_graphs:
        against.append(f"the last good run {good_run}")
        have = graphs_of(census.kinds)
        lacking += (
            [f"{have or 'none'} of the {good_graphs} graphs of the last good run"] if have < PART * good_graphs else []
        )
    if not against:
        return NOTHING_KNOWN
    return Enough(not lacking, tuple(dict.fromkeys(lacking)), tuple(against))


def _less(holds: Devices, needed: Mapping[str, int], words: str, exact: bool | None) -> list[str]:
    found = []
    for device, count in needed.items():
        have = holds.graphs.get(device, 0)
        if have < (count if exact else max(1, PART * count)) and have + holds.unknown < count:
            found.append(f"{device}: {have or 'none'} of the {count} graphs {words}")
    return found
