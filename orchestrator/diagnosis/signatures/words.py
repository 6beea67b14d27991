"""What several signatures say in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from orchestrator.diagnosis.case import Case
from orchestrator.diagnosis.diff import KINDS, Difference
from orchestrator.ledger.runs import CacheSize
from orchestrator.probes.compile_cache import CompileCache
from orchestrator.probes.text import one_line
from orchestrator.probes.units import bytes_text, rate_text

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.failures.found import FailureFound

SHOWN = 6
LINE = 200


def difference_text(one: Difference) -> str:
    """`package sglang: not there -> 0.5.1`"""
    title = KINDS[one.kind]
    name = "" if one.name in (title, one.kind) else f" {one.name}"
    return one_line(f"{title}{name}: {_side(one.a)} -> {_side(one.b)}", LINE)


def differences_text(found: Iterable[Difference]) -> tuple[str, ...]:
    listed = [difference_text(one) for one in found]
    more = (f"and {len(listed) - SHOWN} more: orch diff",) if len(listed) > SHOWN else ()
    return (*listed[:SHOWN], *more)


def _side(value: str | None) -> str:
    if value is None:
        return "not there"
    return value[:12] if len(value) == 64 and value.isalnum() else one_line(value, 80)


def held_text(cache: CompileCache | CacheSize | None) -> str:
    """`353 MB, 4120 graphs`"""
    if cache is None:
        return "not known"
    if not cache.bytes:
        return "empty"
    graphs = "" if cache.entries is None else f", {cache.entries} graph{'' if cache.entries == 1 else 's'}"
    return bytes_text(cache.bytes) + graphs


def failures(case: Case, *kinds: str) -> Iterator[FailureFound]:
    """Of the run's log."""
    log = case.run.log if case.run is not None else None
    yield from (one for one in (log.failures if log is not None else ()) if one.kind in kinds)


def failure_lines(case: Case, one: FailureFound) -> tuple[str, ...]:
    """What the log says, how often, and where in the user's own code."""
    log = case.run.log if case.run is not None else None
    times = f" ({one.count} times)" if one.count > 1 else ""
    lines = [one_line(f"{one.line}{times}", LINE)]
    if log is not None and one.traceback is not None:
        frame = log.tracebacks[one.traceback].root.own_frame or log.tracebacks[one.traceback].root.frame
        if frame is not None:
            lines.append(
                f"at {short_path(frame.file)}:{frame.line}" + (f" in {frame.function}" if frame.function else "")
            )
    return tuple(lines)


def short_path(path: str) -> str:
    """Within the release, where it is of one."""
    return re.sub(r"^.*/orch/releases/[0-9a-f]{64}/", "", path)


def rate_line(case: Case) -> tuple[str, ...]:
    """`4.5 Ktok/s over minutes; 21.3 at the last good run 2026... (21 %)`"""
    here = case.run.tokens_per_s if case.run is not None else None
    there = case.good.tokens_per_s if case.good is not None else None
    if here is None:
        return ()
    if case.good is None:
        return (f"{rate_text(here)} over minutes; there is no last good run to compare with",)
    if not there:
        return (f"{rate_text(here)} over minutes; none is known of {good_text(case)}",)
    return (f"{rate_text(here)} over minutes; {rate_text(there)} at {good_text(case)} ({100 * here / there:.0f} %)",)


def good_text(case: Case) -> str:
    return f"the last good run {case.good.run_id}" if case.good is not None else "the last good run"
