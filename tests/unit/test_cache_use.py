"""What a run found again of a seeded cache, in a sentence. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.cache_use import CacheUse, misses_of, parse_cache_use, seed_missed
from orchestrator.probes.compile_cache import CacheFolder, CompileCache
from orchestrator.reports.training import compiled_text

HARD = {"torch": "2.11.0", "python": "3.12", "gpus": ["NVIDIA H200"], "capability": ["sm_90"]}
RECORD = {
    "seeded": {"snapshot": "nightly", "at": 5.0},
    "made_by": [{"hard": HARD, "soft": {"settings": {"rows": 8}}}],
    "maker": {"hard": HARD, "soft": {"settings": {"rows": 16}}},
    "before": None,
    "after": None,
}
HITS = {"cache_hits": 6, "cache_misses": 0, "aot_cache_hits": 3, "aot_cache_misses": 0, "cache_bypasses": 0}


def use(**changes: object) -> CacheUse:
    found = parse_cache_use({**RECORD, **changes})
    assert found is not None
    return found


def live(new_files: int | None) -> CompileCache:
    return CompileCache((CacheFolder("A", "/a", True, 1, 1, 1, None, True, 0, new_files, None),))


def test_a_seed_that_served_is_no_finding() -> None:
    assert seed_missed(use(), HITS, live(0)) is None
    assert seed_missed(use(), HITS, live(4)) is None  # an export, say: every look-up hit
    assert seed_missed(use(seeded=None), {**HITS, "cache_misses": 6}, live(9)) is None
    assert seed_missed(None, HITS, None) is None and seed_missed(use(), None, live(None)) is None


@pytest.mark.parametrize("name", ["cache_misses", "aot_cache_misses", "cache_bypasses"])
def test_a_miss_of_either_cache_names_the_field_that_differs(name: str) -> None:
    said = seed_missed(use(), {**HITS, name: 2}, live(40))
    assert said is not None and misses_of({**HITS, name: 2}) == 2
    assert said.startswith("seeded from nightly, but 2 of 11 look-ups missed and 40 new files; differs: settings")
    assert '{"rows": 8} then, {"rows": 16} now' in said


def test_a_payload_that_counts_nothing_is_judged_by_new_files() -> None:
    made_by = [{"hard": HARD, "soft": {"settings": {"rows": 16}}}]
    said = seed_missed(use(made_by=made_by), None, live(7))
    assert said is not None and said.startswith(
        "seeded from nightly, but 7 new files; no field that is compared differs"
    )
    assert "not compared: torch_build" in said


def test_a_seed_in_which_nothing_was_looked_up_is_told_once_the_run_has_ended() -> None:
    nothing = dict.fromkeys(HITS, 0)
    assert seed_missed(use(), nothing, live(0)) is None  # it may be on its way to its first look-up
    said = seed_missed(replace(use(), after=live(0)), nothing, live(0))
    assert said is not None and "nothing was looked up in it" in said and "caches are off" in said


def test_of_a_run_that_ended_its_own_end_counts() -> None:
    assert seed_missed(replace(use(), after=live(0)), None, live(7)) is None


def test_hits_of_both_caches_are_shown() -> None:
    text = compiled_text({"compiles": 3, **HITS, "cache_bypasses": 1, "fallbacks": 0})
    assert (
        text == "3 graphs, 6 from the cache, 0 not; autograd 3 from the cache, 0 not, 1 cannot be cached; 0 fallbacks"
    )
    assert compiled_text({"fallbacks": 0, "tracing_stuck": 2}) == "0 fallbacks, tracing flag stuck"
    assert compiled_text({"fallbacks": 0, "tracing_stuck": 0}) == "0 fallbacks"
