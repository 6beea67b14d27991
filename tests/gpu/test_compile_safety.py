"""Must show: one process, several drafters, a cold cache. Without the guard it goes wrong; with it, never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RACE = Path(__file__).parent / "race.py"
RUNS = 5
UNGUARDED_S, GUARDED_S = 75, 170
"""How long a race lets its threads run. The unguarded one may hang for good: what it saw until then is enough."""
STARTED_AND_TOLD_S = 60
SIGNS = ("FX to symbolically trace", "is not installed as a submodule", "ran uncompiled")
"""The race's own marks: any other error is a fault of this test."""


def race(*words: str) -> dict[str, object]:
    """A run that crashes or hangs is an outcome, too."""
    most_s = UNGUARDED_S if words else GUARDED_S
    outcome: dict[str, object]
    try:
        done = subprocess.run(
            [sys.executable, str(RACE), *words],
            env={**os.environ, "RACE_MOST_RUN_S": str(most_s)},
            capture_output=True,
            text=True,
            # A guarded one compiles before its threads run.
            timeout=most_s * (1 if words else 2) + STARTED_AND_TOLD_S,
        )
    except subprocess.TimeoutExpired as error:
        outcome = {"errors": {f"hung: {(error.stderr or b'')[-300:]!r}": 1}, "fallbacks": 0, "died": "hung"}
    else:
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        died = {"errors": {done.stderr[-900:]: 1}, "fallbacks": 0, "died": done.returncode}
        outcome = json.loads(lines[-1]) if lines else died
    line = json.dumps({"words": words, **outcome})
    print(line, flush=True)
    if "OUT" in os.environ:  # kept, whatever becomes of the test
        with Path(os.environ["OUT"], "races.jsonl").open("a") as stream:
            stream.write(line + "\n")
    return outcome


def went_wrong_by_the_race(outcome: dict[str, object]) -> bool:
    """An error with its marks, a fallback, a state stuck; or it hung or was ended by a signal (a segfault)."""
    died = outcome.get("died")
    signed = any(sign in error for error in outcome["errors"] for sign in SIGNS)  # type: ignore[attr-defined]
    ended = died == "hung" or (isinstance(died, int) and died < 0)
    return bool(signed or ended or outcome["fallbacks"] or outcome.get("flag_is_stuck"))


@pytest.mark.timeout(420)
def test_without_guard_and_seal_steps_fail_and_with_them_five_of_five_runs_are_clean() -> None:
    """All at once: they share the GPU and the cores, which only makes the threads meet more often."""
    began = time.monotonic()
    with ThreadPoolExecutor(RUNS + 1) as pool:
        unguarded = pool.submit(race, "--unguarded")
        guarded = list(pool.map(lambda _: race(), range(RUNS)))
    print(f"{RUNS} guarded runs and an unguarded one: {time.monotonic() - began:.0f} s")
    assert went_wrong_by_the_race(unguarded.result()), unguarded.result()
    for outcome in guarded:
        assert outcome["errors"] == {}, outcome
        assert outcome["guarded"] is True
        assert outcome["steps"] == outcome["wanted_steps"]
        assert outcome["cache_misses"], "the cache was not cold"
        assert (outcome["hung"], outcome["fallbacks"], outcome["recompiles"]) == (False, 0, 0)
        assert outcome["flag_is_stuck"] is False
