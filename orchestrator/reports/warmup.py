"""PURE: a warm-up, pass by pass, and its verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.cache_enough import Enough
from orchestrator.ledger.cache_use import CACHES_OFF
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import duration_text, number_text

SCHEMA = "orch.warmup/1"


@dataclass(frozen=True)
class WarmupPass:
    """One run of the payload's warm-up, in a process of its own."""

    run_id: str
    took_s: float | None
    misses: int | None
    """None: the payload does not count."""
    new_files: int | None
    new_graphs: int | None
    complete: bool
    """False: the cache was not counted to its end."""
    hits: int | None = None
    """None: the payload does not count."""

    @property
    def looked_nowhere(self) -> bool:
        """It counts, and there was not one look-up: then that nothing was missed says nothing."""
        return self.hits == 0 and self.misses == 0

    @property
    def found_all(self) -> bool:
        """Nothing was missed and nothing was added."""
        return self.complete and self.new_files == 0 and not self.misses and not self.looked_nowhere


@dataclass(frozen=True)
class WarmupReport:
    target: str
    label: str
    passes: tuple[WarmupPass, ...]
    enough: Enough
    """What the cache holds beside the plan and the last good run."""
    graphs: int
    """That the cache holds now."""

    @property
    def proven(self) -> bool:
        return bool(self.passes) and self.passes[-1].found_all

    @property
    def done(self) -> bool:
        return self.proven and self.enough.verdict is not False


def pass_text(one: WarmupPass) -> str:
    misses = "misses not counted" if one.misses is None else f"{one.misses} misses"
    files = number_text(one.new_files)
    graphs = "" if one.new_graphs is None else f" ({one.new_graphs} graphs)"
    return f"warm-up run {one.run_id}: {misses}, {files} new files{graphs}, {duration_text(one.took_s)}"


def render_warmup(report: WarmupReport) -> str:
    """The passes were told as they ended."""
    if not report.proven:
        return f"{report.target}: not warm: {why_not(report)[0]}"
    held = f"the cache holds {report.graphs} compiled graphs"
    lines = [f"{report.target}: run {report.passes[-1].run_id} found all of it again in a fresh process; {held}"]
    lines += [f"  NOT ENOUGH: {one_line(text)}" for text in report.enough.lacking]
    if report.enough.verdict:
        lines.append(f"  enough for {'; and for '.join(report.enough.against)}")
    if report.enough.verdict is None:
        lines.append("  whether that is all a run asks for is not known: no plan and no good run with graphs is there")
    return "\n".join(lines)


def why_not(report: WarmupReport) -> list[str]:
    """Sentences; empty: it is done."""
    if report.proven:
        return [f"the cache lacks {text}" for text in report.enough.lacking]
    last = report.passes[-1]
    if not last.complete:
        return [f"what run {last.run_id} added could not be counted to its end"]
    if last.looked_nowhere:
        return [f"run {last.run_id} looked nothing up in the cache: {CACHES_OFF}"]
    return [f"in a fresh process the second time still: {pass_text(last)}"]


def warmup_record(report: WarmupReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    told = {**asdict(report), "proven": report.proven, "done": report.done}
    return {"schema": SCHEMA, **plain_values(told)}
