"""What was said of a run: notes of people, findings of the doctor, as the agent tells of remarks.jsonl.

Rule: pure; what is no remark is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_float, as_mapping, as_str, as_strs


@dataclass(frozen=True)
class Note:
    text: str
    by: str | None
    """`ann@laptop`"""
    at_s: float | None


@dataclass(frozen=True)
class KeptFinding:
    """Of the doctor, as it was kept when it looked."""

    id: str
    severity: str
    title: str
    evidence: tuple[str, ...]
    first_at: float | None
    gone_at: float | None
    """None: it was there when the doctor last looked."""


def parse_notes(told: object) -> tuple[Note, ...]:
    """told: `remarks` of runs_overview, or the same as kept. The oldest first."""
    rows = as_mapping(told).get("notes")
    found = []
    for raw in map(as_mapping, rows if isinstance(rows, list) else []):
        text, by = as_str(raw.get("text")), as_str(raw.get("by"))
        if text:
            found.append(
                Note(one_line(text, 2000), None if by is None else one_line(by, 100), _time(raw, "at", "at_s"))
            )
    return tuple(found)


def parse_findings(told: object) -> tuple[KeptFinding, ...]:
    """told: `remarks` of runs_overview, or the same as kept. The first that was seen comes first."""
    rows = as_mapping(told).get("findings")
    found = []
    for raw in map(as_mapping, rows if isinstance(rows, list) else []):
        key = as_str(raw.get("id"))
        if key:
            severity, title = (one_line(as_str(raw.get(name)) or "", 300) for name in ("severity", "title"))
            evidence = tuple(one_line(line, 300) for line in as_strs(raw.get("evidence")))
            times = (_time(raw, "first_at"), _time(raw, "gone_at"))
            found.append(KeptFinding(one_line(key, 60), severity, title, evidence, *times))
    return tuple(found)


def _time(raw: Mapping[str, object], *names: str) -> float | None:
    return next((at for name in names if (at := as_float(raw.get(name))) is not None), None)
