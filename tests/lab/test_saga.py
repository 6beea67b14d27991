"""The field record, replayed: `orch doctor` names the cause first, `orch diff` shows it in its first three lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from tests.lab.saga import SCENARIOS, Scenario
from tests.lab.stage import Stage, Story

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


COMPILING = {"step": None, "total_steps": None, "compile_done": 3, "compile_total": 8}
BARS = "".join(f"\rtrain:  {n}%|##   | {n * 30}/3000 [0{n % 10}:00<09:00,  1.02it/s, loss=2.1]" for n in range(1, 60))


def more_data(stage: Stage) -> None:
    """902K samples -> 1.1M."""
    for number in range(9, 11):
        (stage.data / f"part-{number}.jsonl").write_text('{"text": "b"}\n' * 100)
    stage.launch(Story(rate=20_100.0))


def stopped_by_its_user(stage: Stage) -> None:
    stage.launch(Story(phase="training", goes_on=True))
    stage.place.ok("stop", "--timeout", "5")
    stage.goes_on = False


HEALTHY = {
    "it trains": lambda stage: stage.launch(Story(phase="training", goes_on=True)),
    "it compiles for nine minutes": lambda stage: stage.launch(
        Story(rate=None, phase="compiling", goes_on=True, status=COMPILING, log="")
    ),
    "a foreign payload prints bars": lambda stage: stage.launch(Story(goes_on=True, log=BARS, writes=False)),
    "it was stopped": stopped_by_its_user,
    "more data": more_data,
    "a short run of other steps": lambda stage: stage.launch(Story(rate=18_000.0, minutes=1), "--set", "steps=60"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_gives_no_finding_above_info(stage: Stage, name: str) -> None:
    with stage.as_it_was():
        HEALTHY[name](stage)
        assert stage.findings() == []
