"""Must show: one process, several drafters, a cold cache. Without the guard it goes wrong; with it, never."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RACE = Path(__file__).parent / "race.py"
RUNS = 5
DEADLINE_S = 400
"""Longer than a race lets its threads run."""


def race(*words: str) -> dict[str, object]:
    """A run that crashes or hangs is an outcome, too."""
    outcome: dict[str, object]
    try:
        done = subprocess.run([sys.executable, str(RACE), *words], capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        outcome = {"errors": {f"hung: {(error.stderr or b'')[-300:]!r}": 1}}
    else:
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        outcome = json.loads(lines[-1]) if lines else {"errors": {f"died, {done.returncode}: {done.stderr[-900:]}": 1}}
    print(json.dumps({"words": words, **outcome}), flush=True)
    return outcome


@pytest.mark.timeout(460)
def test_without_guard_and_seal_steps_fail_and_with_them_five_of_five_runs_are_clean() -> None:
    """All at once: they share the GPU and the cores, which only makes the threads meet more often."""
    with ThreadPoolExecutor(RUNS + 1) as pool:
        unguarded = pool.submit(race, "--unguarded")
        guarded = list(pool.map(lambda _: race(), range(RUNS)))
    assert unguarded.result()["errors"] or unguarded.result()["fallbacks"]
    for outcome in guarded:
        assert outcome["errors"] == {}, outcome
        assert outcome["guarded"] is True
        assert outcome["steps"] == outcome["wanted_steps"]
        assert outcome["cache_misses"], "the cache was not cold"
        assert (outcome["errors"], outcome["fallbacks"], outcome["recompiles"]) == ({}, 0, 0)
        assert outcome["flag_is_stuck"] is False
