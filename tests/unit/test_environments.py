"""Which environment a launch takes, and what is said of a target's environments. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.ledger.run_environment import (
    RunEnvironment,
    builds_of,
    choose_by_prefix,
    choose_environment,
    next_build,
    parse_run_environment,
    short_environment,
)
from orchestrator.probes.preflight import Problem
from orchestrator.reports.environment import parse_environments, render_environments

OLD, NEW, TORN = "a" * 32, "b" * 32, "c" * 32


def listed(**current: Any) -> dict[str, Any]:
    facts = {"purpose": "train", "lock_sha256": "5" * 64, "python_version": "3.12.4", "requirements": {"torch": "2"}}
    environments: dict[str, Any] = {
        name: {**facts, "python": f"/root/orch/envs/{name}/bin/python", "built_at": at}
        for name, at in ((OLD, 1e9), (NEW, 2e9))
    }
    environments[TORN] = None
    return {"environments": environments, "current": current, "live": None, "store": "/root/orch/envs"}


def entry(name: str, *, previous: str | None = None, instead_of: str | None = None) -> dict[str, Any]:
    return {"id": name, "previous": previous, "instead_of": instead_of, "at": 2e9}


def test_what_the_lock_asks_for_is_taken() -> None:
    found = choose_environment("train", NEW, listed(train=entry(NEW, previous=OLD)))
    assert found == RunEnvironment(NEW, "train", f"/root/orch/envs/{NEW}/bin/python", "5" * 64, None)
    assert found.note() is None and parse_run_environment(found.record()) == found


def test_what_was_chosen_instead_is_taken_with_a_note() -> None:
    found = choose_environment("train", NEW, listed(train=entry(OLD, instead_of=NEW)))
    assert isinstance(found, RunEnvironment) and found.id == OLD
    assert found.note() == f"environment {OLD[:12]} was chosen instead of {NEW[:12]}, which the lock for train asks for"


@pytest.mark.parametrize(
    ("current", "said", "way_out"),
    [
        ({}, "there is none for train", "orch env sync"),
        ({"datagen": entry(NEW)}, "there is none for train", "orch env sync"),
        ({"train": entry(TORN)}, "is not complete", "orch env sync"),
        ({"train": entry("d" * 32)}, "is not complete", "orch env sync"),
        ({"train": entry(OLD)}, f"asks for {NEW[:12]}, current is {OLD[:12]}", f"orch env use {OLD[:12]}"),
        ({"train": entry(OLD, instead_of=TORN)}, f"asks for {NEW[:12]}, current is {OLD[:12]}", "orch env sync"),
    ],
)
def test_anything_else_is_refused_with_the_way_out(current: dict[str, Any], said: str, way_out: str) -> None:
    found = choose_environment("train", NEW, listed(**current))
    assert isinstance(found, Problem)
    assert said in found.text and way_out in found.way_out


def test_a_second_build_of_the_lock_is_what_the_lock_asks_for() -> None:
    again = f"{NEW}-2"
    answer = listed(train=entry(again, previous=NEW))
    answer["environments"][again] = answer["environments"][NEW]
    found = choose_environment("train", NEW, answer)
    assert isinstance(found, RunEnvironment) and (found.id, found.instead_of) == (again, None)
    assert parse_environments("ct200", answer, {"train": NEW}).not_synced == ()
    assert f"{NEW[:12]}-2" in render_environments(parse_environments("ct200", answer, {}))


def test_builds_of_a_lock_are_numbered() -> None:
    assert next_build([OLD], NEW) == NEW
    there = [f"{NEW}-10", OLD, NEW, f"{NEW}-9"]
    assert builds_of(there, NEW) == [NEW, f"{NEW}-9", f"{NEW}-10"]
    assert next_build(there, NEW) == f"{NEW}-11"
    assert choose_by_prefix(there, "bb") == [NEW] and choose_by_prefix(there, "bbb-9") == [f"{NEW}-9"]
    assert choose_by_prefix(there, short_environment(f"{NEW}-10")) == [f"{NEW}-10"]
    assert choose_by_prefix(there, "") == [OLD, NEW] and choose_by_prefix(there, "bb-3") == []


def test_the_list_says_what_each_is() -> None:
    answer = {**listed(train=entry(NEW, previous=OLD), datagen=entry(NEW)), "live": OLD}
    report = parse_environments("ct200", answer, {"train": NEW, "datagen": TORN})
    states = {row.environment: row.state for row in report.environments}
    assert states == {NEW: "current", OLD: "previous, in use", TORN: "not complete"}
    text = render_environments(report)
    assert "datagen, train" in text and "datagen: not what the inventory's lock asks for (orch env sync)" in text
    assert "train: not what" not in text


def test_what_comes_from_afar_is_made_safe() -> None:
    answer = listed(train=entry(NEW))
    answer["environments"][NEW]["built_by"] = "me\x1b[2J@\nhere"
    text = render_environments(parse_environments("ct200", answer, {}))
    assert "\x1b" not in text and len(text.splitlines()) == 5
