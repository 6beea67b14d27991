"""What a run made of the compile cache: seeded from what, how much was found again, what was added.

Rule: pure; what is not known is None. Hits alone prove no fast start: what was written since is told beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.ledger.cache_fit import Fit, judge, parse_maker, parse_makers
from orchestrator.probes.compile_cache import CompileCache, parse_cache_stats
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_float, as_mapping, as_str

SHOWN_FIELDS = 4
CACHES_OFF = "torch's caches are off (TORCHINDUCTOR_FORCE_DISABLE_CACHES, say), or it compiled nothing"


@dataclass(frozen=True)
class CacheUse:
    """cache.json of a run."""

    seeded_from: str | None
    """The snapshot that the live cache had been made from when it was launched."""
    seeded_at: float | None
    fit: Fit | None
    """This run beside those that made the snapshot's entries; None: it began with no seeded cache."""
    before: CompileCache | None
    after: CompileCache | None
    """None: it has not ended, or nobody recorded its end."""


def parse_cache_use(record: object) -> CacheUse | None:
    """None when there is none, or it cannot be read."""
    raw = as_mapping(record)
    if not raw or "broken" in raw:
        return None
    seeded = as_mapping(raw.get("seeded"))
    name = as_str(seeded.get("snapshot"))
    fit = judge(parse_makers(raw.get("made_by")), None, parse_maker(raw.get("maker")), None) if name else None
    before, after = (parse_cache_stats(raw.get(word)) for word in ("before", "after"))
    return CacheUse(name, as_float(seeded.get("at")), fit, before, after)


def misses_of(compiled: Mapping[str, int] | None) -> int | None:
    """Look-ups that found nothing, of both of torch's caches, and graphs that it will not keep. None: not counted."""
    names = ("cache_misses", "aot_cache_misses", "cache_bypasses")
    counted = [compiled[name] for name in names if name in compiled] if compiled else []
    return sum(counted) if counted else None


def hits_of(compiled: Mapping[str, int] | None) -> int | None:
    """Look-ups that found something, of both of torch's caches. None: not counted."""
    if misses_of(compiled) is None:
        return None
    return sum((compiled or {}).get(name, 0) for name in ("cache_hits", "aot_cache_hits"))


def seed_missed(use: CacheUse | None, compiled: Mapping[str, int] | None, now: CompileCache | None) -> str | None:
    """`seeded from nightly, but ...`: how much was missed, and why as far as that is known. None: nothing was missed.

    now: the live cache, for a run that goes on; new files count where the payload says nothing of hits."""
    if use is None or use.seeded_from is None:
        return None
    cache = use.after or now
    misses, new_files = misses_of(compiled), cache.new_files if cache is not None else None
    if misses == 0 and hits_of(compiled) == 0 and use.after is not None:
        return f"seeded from {one_line(use.seeded_from)}, but nothing was looked up in it; {CACHES_OFF}"
    if not (misses if misses is not None else new_files):
        return None
    hits = hits_of(compiled) or 0
    missed = [] if misses is None else [f"{misses} of {hits + misses} look-ups missed"]
    missed += [] if new_files is None else [f"{new_files} new files"]
    return f"seeded from {one_line(use.seeded_from)}, but {' and '.join(missed)}; {_why(use.fit)}"


def _why(fit: Fit | None) -> str:
    differs = [*fit.hard, *fit.soft] if fit is not None else []
    if differs:
        shown = [f"{one.field} ({one_line(one.kept)} then, {one_line(one.now)} now)" for one in differs[:SHOWN_FIELDS]]
        return "differs: " + ", ".join(shown)
    unknown = f" (not compared: {', '.join(fit.unknown)})" if fit is not None and fit.unknown else ""
    return f"no field that is compared differs{unknown}: other shapes, another device index, or an edited package"
