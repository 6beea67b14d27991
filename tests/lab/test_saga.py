"""The field record, replayed: `orch doctor` names the cause first, `orch diff` shows it in its first three lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from tests.lab.saga import SCENARIOS, Scenario
from tests.lab.stage import Stage

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def stage(embedded_lab: EmbeddedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = Stage(embedded_lab, tmp_path_factory.mktemp("saga"), "q1")
    yield found
    found.place.clean()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: f"{one.item} {one.name}")
def test_the_cause_is_named_first_and_shown_first(stage: Stage, scenario: Scenario) -> None:
    with stage.as_it_was():
        answer = scenario.act(stage)
    assert answer.ids[:1] == [scenario.first], answer.doctor["findings"]
    assert any(scenario.diff in line for line in answer.diff[:3]), answer.diff
