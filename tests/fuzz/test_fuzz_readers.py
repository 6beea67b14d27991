"""Two seconds of fuzzing a reader; `python -m benches.fuzz` does it for a minute each, with repetitions of 1 MB."""

import time

import pytest

from tests.fuzz.harness import KEPT_BYTES, Target, fuzz, growth_bytes, slow_repetitions
from tests.fuzz.targets import TARGETS

SECONDS = 2.0
MOST_INPUTS, MOST_REPETITIONS = 1000, 10
"""The same ones each time: a faster machine must not find what a slower one did not."""
SIZE = 128 * 1024


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_gives_a_reading_that_is_true_of_it(name):
    outcome = fuzz(TARGETS[name], SECONDS, most_inputs=MOST_INPUTS)
    print(outcome.text(name))
    assert outcome.wrong == []
    assert outcome.inputs > 20
    assert outcome.values > 0


@pytest.mark.parametrize("name", TARGETS)
def test_repetitions_of_its_own_tokens_take_time_in_proportion(name):
    tried, slow = slow_repetitions(TARGETS[name], SECONDS / 2, SIZE, most=MOST_REPETITIONS)
    print(f"{name}: {tried} repetitions")
    assert slow == []
    assert tried > 0


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_stays_behind(name):
    assert growth_bytes(TARGETS[name]) < KEPT_BYTES


def _raises(text):
    raise ValueError("no")


def _quadratic(text):
    until = time.process_time() + (len(text) / SIZE) ** 2 * 0.8
    while time.process_time() < until:
        pass


def test_the_harness_finds_what_it_looks_for():
    from dataclasses import dataclass

    from orchestrator.probes.spans import Located, Span

    @dataclass(frozen=True)
    class Reading(Located):
        number: int = 7

    kept = []
    assert fuzz(Target("raises", _raises, ["a"]), 0.1).wrong
    assert fuzz(Target("placeless", lambda text: Reading(), ["a 7"]), 0.1).wrong
    assert fuzz(Target("untrue", lambda text: Reading(spans={"number": Span(0, len(text))}), ["a 8"]), 0.1).wrong
    assert not fuzz(Target("empty", lambda text: None, ["a"]), 0.1).wrong
    assert slow_repetitions(Target("quadratic", _quadratic, ["ab c"]), 0.01, SIZE)[1]
    assert growth_bytes(Target("keeps", lambda text: kept.append(text * 100), ["a" * 400])) >= KEPT_BYTES
