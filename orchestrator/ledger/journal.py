"""One line of the target's journal, and how it is said.

Rule: pure; a line that cannot be read is None, and what it does not tell is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_float, as_mapping, as_str


@dataclass(frozen=True)
class JournalEntry:
    entry_id: str
    at_s: float | None
    """Unix time, the target's clock."""
    op: str
    """launch, stop, switch, prune, reset"""
    who: str | None
    host: str | None
    phase: str
    """begin, done, failed"""
    detail: Mapping[str, object]

    @property
    def by(self) -> str:
        """`ann@laptop`"""
        return "@".join(name for name in (self.who, self.host) if name) or "somebody"


def parse_journal_entry(value: object) -> JournalEntry | None:
    raw = as_mapping(value)
    entry_id, op = as_str(raw.get("id")), as_str(raw.get("op"))
    if entry_id is None or op is None:
        return None
    who, host = as_str(raw.get("who")), as_str(raw.get("host"))
    return JournalEntry(
        entry_id=one_line(entry_id, 40),
        at_s=as_float(raw.get("at")),
        op=one_line(op, 40),
        who=None if who is None else one_line(who, 60),
        host=None if host is None else one_line(host, 60),
        phase=one_line(as_str(raw.get("phase")) or "", 40),
        detail=as_mapping(raw.get("detail")),
    )


def unfinished_text(entry: JournalEntry) -> str:
    """`reset begun by ann@laptop at 2026-11-29 14:15:00 UTC never finished: run 20261129-141500-a1b2`"""
    text = f"{entry.op} begun by {entry.by} at {utc_text(entry.at_s)} never finished"
    about = detail_text(entry.detail)
    return f"{text}: {about}" if about else text


def detail_text(detail: Mapping[str, object]) -> str:
    """`run 2026..., release 0123456789ab`: one line."""
    parts = []
    for name, value in detail.items():
        if value is None or value == [] or value == "":
            continue
        if name in ("release", "from"):
            value = str(value)[:12]
        elif isinstance(value, list):
            value = len(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        parts.append(f"{'run' if name == 'run_id' else name.replace('_', ' ')} {value}")
    return one_line(", ".join(parts))


def utc_text(at_s: float | None) -> str:
    """Also for a clock that was far off: then a dash."""
    if at_s is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "-"
