"""PURE: what differs between two runs: one line each, the likeliest cause first; then the details; as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from orchestrator.diagnosis.code import LineDiff
from orchestrator.diagnosis.diff import KINDS, Comparison, Difference, NotObserved
from orchestrator.diagnosis.finding import RANKS
from orchestrator.ledger.runs import CacheSize, RunSummary, tokens_per_s
from orchestrator.ledger.runs import rate_of as rate_by
from orchestrator.probes.text import one_line
from orchestrator.reports.diff_words import code_words, difference_words
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, bytes_text, render_rows
from orchestrator.reports.training import compiled_text, rate_of

SCHEMA = "orch.diff/1"
APART = 3
"""Differences of one kind that have a line each; more share one."""
TOGETHER = 4
"""How many of them that line names."""
OF_THE_LEDGER = (
    "outcome",
    "acceptance",
    "cache_before",
    "cache_after",
    "compiled",
    "trend",
    "looked",
    "findings",
    "notes",
)
NOTHING, NO_LOOK = "nothing", "no look recorded"
"""What the doctor found of a run."""
SHOWN_NAMES = 100
"""Of one kind, and files; --json has all."""
SHOWN_LINES = 60
"""Of one file's line diff; --json has all."""


@dataclass(frozen=True)
class Side:
    name: str
    """`last good`, `latest`, `now`; empty for a run that was named."""
    run_id: str | None
    """None: the target as it is."""
    why: str
    """How it ended, or why it counts as good."""
    summary: RunSummary | None
    identity: str | None
    """Hash of what is compared."""


@dataclass(frozen=True)
class DiffReport:
    target: str
    label: str
    a: Side
    b: Side
    comparison: Comparison
    files: tuple[LineDiff, ...]
    commits: tuple[str, ...] | None
    """None: git on this machine does not know them."""


def render_diff(report: DiffReport) -> str:
    comparison = report.comparison
    rows = [(KINDS[kind], one_line(text, 400)) for kind, text in finding_lines(report)]
    lines = [_head(report)]
    if rows:
        lines.append(render_rows(rows, indent="  "))
    for one in comparison.observed:
        lines.append(f"  also observed: {one_line(difference_words(one), 300)}")
    lines += [f"  {name}: {one_line(text, 300)}" for name, text in ledger_lines(report)]
    for title, block in _details(report):
        lines += ["", title, *(f"  {line}" for line in block)]
    if comparison.not_observed:
        lines += ["", *_not_observed(comparison.not_observed)]
    return "\n".join(lines)


def finding_lines(report: DiffReport) -> Iterator[tuple[str, str]]:
    """(kind, text), the most risky first."""
    changes = {file.change.path: file for file in report.files}
    for kind, group in groupby(report.comparison.differences, key=lambda one: one.kind):
        found = list(group)
        if kind == "code":
            yield kind, code_words(found, report.commits)
            continue
        words = [difference_words(one, changes.get(one.name)) for one in found]
        if len(words) <= APART:
            yield from ((kind, text) for text in words)
            continue
        more = f"; and {len(words) - TOGETHER} more" if len(words) > TOGETHER else ""
        yield kind, "; ".join(words[:TOGETHER]) + more


def ledger_lines(report: DiffReport) -> Iterator[tuple[str, str]]:
    """What the records of both runs say came of it, where that is not the same."""
    a, b = report.a.summary, report.b.summary
    if a is None or b is None:
        return
    for name, value in LEDGER.items():
        before, now = value(a), value(b)
        # That nobody looked at one of them is no difference of the runs.
        if before != now and {before, now} != {NO_LOOK, NOTHING}:
            yield name, f"{before} -> {now}"


def _cache_words(size: CacheSize | None) -> str:
    if size is None:
        return DASH
    graphs = "" if size.entries is None else f", {size.entries} graphs"
    return ("" if size.complete else "at least ") + bytes_text(size.bytes) + graphs


def _speed_words(run: RunSummary) -> str:
    rate = rate_by(run)
    return rate_of(rate) if rate else DASH


def _found_words(run: RunSummary) -> str:
    """The cause first, as the doctor said it. Of a run that has no findings it is not known whether it ever looked,
    unless it said so."""
    told = [one.id for one in run.findings if one.severity != "info"]
    if not told:
        return NOTHING if run.looked else NO_LOOK
    return ", ".join(sorted(told, key=lambda one: (RANKS.get(one, len(RANKS)), one)))


LEDGER: Mapping[str, Callable[[RunSummary], str]] = {
    "speed": _speed_words,
    "acceptance": lambda run: DASH if run.acceptance is None else f"{run.acceptance:.2f}",
    "compile cache before": lambda run: _cache_words(run.cache_before),
    "compile cache after": lambda run: _cache_words(run.cache_after),
    "compiled": lambda run: compiled_text(run.compiled) if run.compiled else DASH,
    "found": _found_words,
    "notes": lambda run: "; ".join(note.text for note in run.notes) or "none",
}


def diff_record(report: DiffReport) -> dict[str, Any]:
    """For --json. Unknown is null."""

    def difference(one: Difference) -> dict[str, Any]:
        about = {"kind": one.kind, "title": KINDS[one.kind], "rank": one.rank, "identity": one.identity}
        return {**about, "part": one.part or one.kind, "name": one.name, "a": one.a, "b": one.b}

    sides = {name: _side_record(side) for name, side in (("a", report.a), ("b", report.b))}
    comparison = report.comparison
    return {
        "schema": SCHEMA,
        "target": report.target,
        **sides,
        "equal": comparison.equal,
        "differences": [difference(one) for one in comparison.differences],
        "observed": [difference(one) for one in comparison.observed],
        "not_observed": [asdict(one) for one in comparison.not_observed],
        "files": [
            {**asdict(file.change), "lines": None if file.why_not else list(file.lines), "why_not": file.why_not}
            for file in report.files
        ],
        "commits": None if report.commits is None else list(report.commits),
    }


def _side_record(side: Side) -> dict[str, Any]:
    throughput = side.summary.throughput if side.summary else None
    about = {name: getattr(side, name) for name in ("name", "run_id", "why", "identity")}
    started = side.summary.started_at if side.summary else None
    about |= {"started_at": started, "throughput": asdict(throughput) if throughput else None}
    for name in OF_THE_LEDGER:
        about[name] = asdict(side.summary)[name] if side.summary else None
    plain: dict[str, Any] = plain_values(about)
    return plain


def _head(report: DiffReport) -> str:
    count = len(report.comparison.differences)
    found = {0: "no difference", 1: "1 difference"}.get(count, f"{count} differences")
    if not count:
        found += " in what was observed of both"
    slower = _slower(report.a.summary, report.b.summary)
    return one_line(f"{_side_text(report.a)} -> {_side_text(report.b, slower)}: {found}", 400)


def _side_text(side: Side, slower: str = "") -> str:
    name = side.name if side.run_id is None else f"{side.name} {side.run_id}".strip()
    rate = side.summary.throughput.rate if side.summary and side.summary.throughput else None
    said = [text for text in (side.why, rate_of(rate) if rate else "", slower) if text]
    return name + (f" ({', '.join(said)})" if said else "")


def _slower(a: RunSummary | None, b: RunSummary | None) -> str:
    before, now = (tokens_per_s(run) if run else None for run in (a, b))
    if not before or now is None:
        return ""
    percent = round(100 * (now / before - 1))
    return "" if percent == 0 else f"{abs(percent)} % {'more' if percent > 0 else 'less'}"


def _details(report: DiffReport) -> Iterator[tuple[str, list[str]]]:
    for kind, group in groupby(report.comparison.differences, key=lambda one: one.kind):
        found = list(group)
        if kind != "code" and len(found) > TOGETHER:
            block = [one_line(difference_words(one), 1000) for one in found[:SHOWN_NAMES]]
            hidden = len(found) - SHOWN_NAMES
            yield KINDS[kind], [*block, *([f"... {hidden} more: --json has all"] if hidden > 0 else [])]
    if report.commits:
        yield "commits (+ only in B, - only in A)", [one_line(line) for line in report.commits]
    for file in report.files[:SHOWN_NAMES]:
        if file.why_not:
            yield file.change.path, [f"not shown: {file.why_not}"]
            continue
        hidden = len(file.lines) - SHOWN_LINES
        more = [f"... {hidden} more lines: --json has all"] if hidden > 0 else []
        yield file.change.path, [*file.lines[:SHOWN_LINES], *more]
    if len(report.files) > SHOWN_NAMES:
        yield "more files", [f"{len(report.files) - SHOWN_NAMES} are not shown: --json names all"]


def _not_observed(found: tuple[NotObserved, ...]) -> Iterator[str]:
    """Last, and short: by side."""
    sides: Mapping[tuple[bool, bool], str] = {
        (True, False): "not observed in A",
        (False, True): "not observed in B",
        (True, True): "not observed in either",
    }
    for side, words in sides.items():
        names = [f"{KINDS[one.kind]} {one.name}".strip() for one in found if (one.a, one.b) == side]
        if names:
            yield one_line(f"{words}: {', '.join(dict.fromkeys(names))}", 1000)
