"""What a real H200 said of healthy and of broken runs: the broken ones are named, no healthy phase is."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.diagnosis.case import RunFacts
from orchestrator.diagnosis.diagnose import Diagnosis
from orchestrator.probes.pace import parse_metrics
from tests.recordings import Recording, load
from tests.unit.cases import GOOD_ID, NOW_S, RUN_ID, diagnosed, facts, ids

HEALTHY = ("healthy_cold", "healthy_warm", "healthy_one", "healthy_long", "healthy_on_two", "healthy_five_targets")
GOOD = {
    (2, 1, 2048): "healthy_one",
    (2, 3, 2048): "healthy_cold",
    (2, 3, 8192): "healthy_long",
    (5, 3, 8192): "healthy_five_targets",
}
"""Targets, drafters, longest row -> the recording that is the last good run of a broken one: the same settings."""
MINUTES = 60.0
"""Seconds of a recording are told as minutes: a rate is judged over minutes."""
ENDED = {"exit_code": 3, "started_at": NOW_S - 900, "ended_at": NOW_S}


def run_of(
    recording: Recording,
    number: int = -1,
    *,
    run_id: str = RUN_ID,
    stretch: float = MINUTES,
    exit_record: dict[str, Any] | None = None,
    silent_s: float = 1.0,
    counts: bool = True,
) -> RunFacts:
    """exit_record None: it goes on, and is at the snapshot of this number. counts: as our payload does what is
    compiled."""
    status = recording.status(number, NOW_S - silent_s, stretch)
    pace = parse_metrics(recording.metrics(NOW_S - silent_s, stretch, until=number), begins_whole=True)
    left_out = ("updated_at",) if counts else ("updated_at", "compiled")
    return facts(
        run_id,
        log=recording.log if exit_record is not None or number == -1 else "",
        exit_record=exit_record,
        pace=pace,
        runtime=recording.runtime,
        silent_s=silent_s,
        **{name: value for name, value in status.items() if value is not None and name not in left_out},
    )


def judged(recording: Recording, run: RunFacts, **changes: Any) -> Diagnosis:
    asked = recording.raw["run"]
    shape = asked["targets"], asked["drafters"], asked["settings"]["data.max_tokens"]
    name = recording.name if recording.name in HEALTHY else GOOD[shape]
    good = run_of(load(name), run_id=GOOD_ID, exit_record=ENDED)
    return diagnosed(run=run, good=good, **changes)


@pytest.mark.parametrize("stretch", [1.0, 8.0])
@pytest.mark.parametrize("name", HEALTHY)
def test_no_phase_of_a_healthy_run_gives_a_finding(name: str, stretch: float) -> None:
    recording = load(name)
    phases = set()
    for number, snapshot in enumerate(recording.snapshots):
        phases.add(snapshot["status"]["phase"])
        found = judged(recording, run_of(recording, number, stretch=stretch))
        assert ids(found) == [], (snapshot["at_s"], snapshot["status"]["phase"], found.findings)
    assert {"loading", "preparing", "compiling", "training", "checkpointing"} <= phases
    assert phases & {"stopping", "done"}
    assert name in ("healthy_warm", "healthy_one", "healthy_five_targets") or "evaluating" in phases


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_that_has_ended_gives_a_finding_neither(name: str) -> None:
    recording = load(name)
    ended = {**ENDED, "exit_code": recording.raw["exit_code"]}
    assert ids(judged(recording, run_of(recording, exit_record=ended))) == []


BROKEN = {
    # recording -> (how long it has said nothing, its exit code or None while it lives, what comes first)
    "unguarded": (1.0, 1, "fx-race"),
    "dense_of_three": (1.0, 1, "fx-race"),
    "dense": (1.0, None, "eager-fallback"),
    "silenced": (60.0, None, "torch-changed"),
    "always_false": (60.0, None, "torch-changed"),
    "force_compile": (1.0, None, "torch-changed"),
    "stuck": (1.0, None, "fx-race"),
    "stuck_long": (1.0, 1, "fx-race"),
    "stuck_five_targets": (1.0, None, "fx-race"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_named_by_its_cause(name: str) -> None:
    silent_s, code, first = BROKEN[name]
    recording = load(name)
    ended = None if code is None else {"exit_code": code, "started_at": NOW_S - 900, "ended_at": NOW_S}
    found = judged(recording, run_of(recording, exit_record=ended, silent_s=silent_s))
    assert ids(found)[:1] == [first], found.findings


def test_the_fallback_is_five_times_slower_and_says_so_without_any_text() -> None:
    """Its rate and its memory alone: a payload of one's own prints no such warning, and counts nothing."""
    recording = load("dense")
    run = run_of(recording, -2, counts=False)
    assert run.log is not None and not run.log.failures
    found = judged(recording, run)
    assert ids(found)[0] == "eager-fallback", found.findings
    assert any("4307 MiB" in line for line in found.findings[0].evidence)
    assert run.tokens_per_s is not None and run.tokens_per_s < 0.25 * 55_000


STUCK = {
    # recording -> its peak and the good run's
    "stuck_long": "65531 MiB; 6929 MiB",
    "stuck_five_targets": "59169 MiB; 7371 MiB",
}


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_flag_is_named_while_the_run_goes_on_at_a_fraction_of_its_rate(name: str) -> None:
    recording = load(name)
    run = run_of(recording, last_training(recording))
    found = judged(recording, run)
    assert ids(found)[0] == "fx-race", found.findings
    assert found.findings[0].severity == "critical"
    (eager,) = [one for one in found.findings if one.id == "eager-fallback"]
    assert any(f"{STUCK[name]} at the last good run" in line for line in eager.evidence), eager.evidence
    (slow,) = [one for one in found.findings if one.id == "slow"]
    assert slow.severity == "critical"  # less than half


def test_a_stuck_flag_that_nobody_asks_for_is_told_by_rate_and_memory() -> None:
    """A payload of one's own counts nothing."""
    recording = load("stuck_five_targets")
    run = run_of(recording, last_training(recording), counts=False)
    assert ids(judged(recording, run))[:2] == ["torch-changed", "eager-fallback"]


def last_training(recording: Recording) -> int:
    phases = [one["status"]["phase"] for one in recording.snapshots]
    return len(phases) - 1 - phases[::-1].index("training")


def test_a_run_that_hangs_after_a_wrong_cure_is_stalled_and_its_edit_is_named_first() -> None:
    recording = load("flag_cleared")
    run = run_of(recording, silent_s=1200.0)
    assert ids(judged(recording, run)) == ["run-stalled"]
    edited = {"edited": {"attention.py": "9" * 64}}
    assert ids(judged(recording, run, identity_of_run=edited)) == ["code-edited", "run-stalled"]
