"""docs/playbook.schema.json is what the models say, and takes every shipped playbook."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.inventory.loader import load_inventory
from orchestrator.playbook import registry, relations, schema, variables
from orchestrator.playbook.begin import Beginning
from orchestrator.playbook.json_schema import schema_text
from orchestrator.playbook.plan import plan_play, render_plan
from orchestrator.playbook.play import Loaded, load_playbook
from orchestrator.playbook.progress import Progress

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_is_up_to_date() -> None:
    # python -m orchestrator play --schema > docs/playbook.schema.json
    assert (ROOT / "docs" / "playbook.schema.json").read_text(encoding="utf-8") == schema_text()


def test_lists_of_operations_name_operations() -> None:
    known = set(schema.OPERATIONS)
    named = (relations.REPEATABLE, relations.AFTER_FAILURE, relations.OF_A_RUN, relations.OF_ONE_TARGET)
    assert [name for names in (*named, variables.SETS) for name in names if name not in known] == []
    assert set(registry.DOING) == known
    assert {name for names in variables.SETS.values() for name in names} <= set(variables.BUILT_IN)


SHIPPED = sorted((ROOT / "playbooks").glob("*.yaml"))


def load(path: Path) -> Loaded:
    return load_playbook(path, load_inventory(ROOT / "inventory.yaml"))


def plan_text(loaded: Loaded) -> str:
    return render_plan(
        plan_play(loaded.playbook, loaded.inventory, loaded.targets, Beginning(False, frozenset(), {}, ()), Progress())
    )


def test_three_are_shipped() -> None:
    assert [path.stem for path in SHIPPED] == ["nightly", "recover", "smoke"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_playbook_is_read_and_planned(path: Path) -> None:
    loaded = load(path)
    rows = plan_text(loaded).splitlines()
    assert len(rows) > len(loaded.playbook.all_steps)
    assert [
        row for row in rows if "${" in row and not any(name in row for name in ("run_id", "play_id", "summary"))
    ] == []


def test_the_nightly_does_what_it_says_in_this_order() -> None:
    playbook = load(ROOT / "playbooks" / "nightly.yaml").playbook
    assert [step.operation for step in playbook.steps] == [
        *("status", "deploy", "env sync", "env check", "cache seed", "launch", "expect", "wait", "evaluate", "gate"),
        *("publish", "cache save"),
    ]
    assert [step.operation for step in playbook.on_failure] == ["stop", "pull", "diff", "doctor"]
    assert [step.operation for step in playbook.always] == ["notify"]


def test_a_plan_shows_values_and_what_is_known_later_by_its_name() -> None:
    text = plan_text(load(ROOT / "playbooks" / "nightly.yaml"))
    assert "at least 85 % of the last good rate within 45m" in text
    assert "keep the live cache as nightly-${run_id}" in text
    assert "tau no more than 0.05 below the published one, lossless" in text
