"""cold-cache, warm-up-insufficient, seed-missed, hacked-cache: did the run find compiled what it asked for?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.diagnosis.case import Case, RunFacts, differences
from orchestrator.diagnosis.finding import INFO, WARNING, Finding
from orchestrator.diagnosis.signatures.compiled import HACKS
from orchestrator.diagnosis.signatures.words import difference_text, good_text, held_text
from orchestrator.ledger.cache_use import misses_of
from orchestrator.ledger.cache_use import seed_missed as missed_text
from orchestrator.ledger.runs import CacheSize
from orchestrator.probes.compile_cache import CompileCache
from orchestrator.probes.values import as_mapping

LOST = 0.5
"""Of what the last good run found: a cache grows, and loses nothing by itself."""
TOUCHED = 0.05
"""Of it: less than this, and more than nothing, is what one small compilation leaves (0.26 % was seen)."""
TRIFLE_BYTES = 1_000_000
"""A cache that was never larger than this is that of a toy: three graphs of a small drafter took 38 MB."""
KEYS = ("torch", "stack", "python", "gpus", "driver", "code")
"""Differences that make a cache's entries another's: to compile anew is then as it should be."""
MISSED = 0.5
"""Of the look-ups of a run that began with a seeded cache."""


def lost(case: Case) -> Iterator[Finding]:
    """cold-cache, or warm-up-insufficient where something was compiled since."""
    run = case.run
    before = run.cache_before if run is not None else None
    then = max(_caches(case.good), key=lambda one: one.bytes or 0, default=None)
    share = _share(before, then)
    if before is None or then is None or share is None or share >= LOST:
        return
    evidence = [
        f"it held {held_text(before)} at the start; {held_text(then)} with {good_text(case)} ({100 * share:.2g} %)"
    ]
    expected = [difference_text(one) for one in differences(case.comparison, *KEYS)[:2]]
    evidence += [f"{text}: what was compiled before would not have been found anyhow" for text in expected]
    evidence += _counted(case)
    severity = INFO if expected or _compiles_first(case) else WARNING
    small = bool(before.bytes) and share < TOUCHED
    what = (
        "the warm-up compiled a small part of what the run asks for"
        if small
        else "the run began with a compile cache that had lost what the last good run had"
    )
    yield _finding(case, small, severity, what, evidence)


def lost_since(case: Case) -> Iterator[Finding]:
    """The same, before the next launch pays for it: what the newest run left is no longer there."""
    run, now = case.run, case.cache_now
    if run is None or case.live or now is None:
        return
    then = max(_caches(run) + _caches(case.good), key=lambda one: one.bytes or 0, default=None)
    share = _share(now, then)
    if then is None or share is None or share >= LOST:
        return
    expected = [difference_text(one) for one in differences(case.since, *KEYS)[:2]]
    evidence = [f"it holds {held_text(now)} now; {held_text(then)} were there ({100 * share:.2g} %)", *expected]
    small = bool(now.bytes) and share < TOUCHED
    what = (
        "the warm-up compiled a small part of what was there"
        if small
        else "the compile cache has lost what it held; the next launch compiles anew"
    )
    yield _finding(case, small, INFO if expected or _compiles_first(case) else WARNING, what, evidence)


def _share(now: CompileCache | None, then: CompileCache | CacheSize | None) -> float | None:
    """What is left of it. None: not known, or it was never worth a word."""
    if now is None or then is None or not then.bytes or then.bytes < TRIFLE_BYTES or not now.complete:
        return None
    return (now.bytes or 0) / then.bytes


def _finding(case: Case, small: bool, severity: str, what: str, evidence: Sequence[str]) -> Finding:
    """small: something was compiled since."""
    cause = (
        "one call of one kernel at one shape on one GPU warms nothing else: not the other devices, the backward pass, "
        "the loss, other lengths"
        if small
        else "someone removed it, or its folder is another one; compiling anew takes 8 to 10 minutes, and shows races "
        "in the code that a warm cache hides"
    )
    finding_id = "warm-up-insufficient" if small else "cold-cache"
    return Finding(finding_id, severity, what, tuple(evidence), cause, *_way_back(case))


def _caches(run: RunFacts | None) -> list[CompileCache | CacheSize]:
    """What it found, and what it left."""
    if run is None:
        return []
    after = run.summary.cache_after if run.summary is not None else None
    return [one for one in (run.cache_before, after) if one is not None]


def _compiles_first(case: Case) -> bool:
    """The payload counts what it compiles, and does so before it trains: a cold cache costs it time only."""
    status = case.run.record.status if case.run is not None and case.run.record is not None else None
    return status is not None and (status.compiled is not None or status.compile_total is not None)


def _way_back(case: Case) -> tuple[str, str | None]:
    if case.snapshots:
        return "make the cache anew from the copy that goes with the last good run, then launch again", case.orch(
            "cache", "seed", "last-good", "--replace"
        )
    return (
        "let a run compile everything once, look that it trains at its old rate, and keep a copy of the cache",
        case.orch("cache", "save", "good"),
    )


def _counted(case: Case) -> list[str]:
    status = case.run.record.status if case.run is not None and case.run.record is not None else None
    counts = (status.compiled or {}) if status is not None else {}
    hits, misses = counts.get("cache_hits"), counts.get("cache_misses")
    return [f"{hits} graphs came from the cache, {misses} did not"] if hits is not None and misses is not None else []


def seed_missed(case: Case) -> Iterator[Finding]:
    record = case.run.record if case.run is not None else None
    compiled = record.status.compiled if record is not None and record.status is not None else None
    use = record.cache if record is not None else None
    missed = missed_text(use, compiled, case.cache_now if case.live else None)
    if use is None or missed is None:
        return
    misses = misses_of(compiled)
    hits = sum((compiled or {}).get(name, 0) for name in ("cache_hits", "aot_cache_hits"))
    many = misses is not None and misses > MISSED * (hits + misses)
    yield Finding(
        "seed-missed",
        WARNING if many else INFO,
        f"the cache was made from {use.seeded_from}, and the run found {'little' if many else 'not all'} of it again",
        (missed, *(difference_text(one) for one in differences(case.comparison, *KEYS)[:3])),
        "its entries were made with another torch, triton, Python or GPU, for other devices, or by other code",
        "see what differs from the run that made them, and keep this run's cache once it trains well",
        case.orch("cache", "show"),
    )


def hacked(case: Case) -> Iterator[Finding]:
    """A run with compiler settings that are known to leave worse kernels wrote into the cache that is used now."""
    if not case.cache_writers:
        return
    told = []
    for run_id, runtime in case.cache_writers:
        settings = as_mapping(runtime.get("compiler_settings"))
        for (module, name), (value, meaning) in HACKS.items():
            if as_mapping(settings.get(module)).get(name) is value and name not in ("force_disable_caches", "disable"):
                told.append(f"run {run_id} wrote into it with {module}.{name} = {value}: {meaning}")
    if told:
        yield Finding(
            "hacked-cache",
            WARNING,
            "the compile cache holds entries that a run with altered compiler settings left",
            tuple(told),
            "such a run keeps degraded kernels, which every later run finds again and takes for good",
            "set this cache aside and make it anew from the copy that goes with the last good run"
            if case.snapshots
            else "set this cache aside and let a run without those settings fill a new one",
            case.orch("cache", "seed", "last-good", "--replace") if case.snapshots else case.orch("cache", "clear"),
        )
