"""PURE: what was published, and what there is, as facts and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.journal import utc_text
from orchestrator.ledger.publications import Publication, Shelved
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, bytes_text, render_rows, short

SCHEMA = "orch.published/1"


@dataclass(frozen=True)
class PublishReport:
    where: str
    target: str
    run_id: str
    step: int | None
    """None: the export."""
    tree_hash: str
    files: int
    size_bytes: int
    bytes_sent: int
    """0: it was there already."""
    replaced: Publication | None
    replaced_hash: str | None
    """What was current before. None: nothing was."""
    removed: tuple[str, ...]
    note: str
    """What did not go as wanted after the switch. Empty: nothing."""
    result: Mapping[str, object]


@dataclass(frozen=True)
class SwitchReport:
    where: str
    current: Publication
    replaced: Publication | None
    replaced_hash: str | None


def render_published(report: PublishReport) -> str:
    what = f"run {report.run_id}" + ("" if report.step is None else f", step {report.step}")
    lines = [
        f"{report.where}: {what} is current ({short(report.tree_hash)}, {report.files} files, "
        f"{bytes_text(report.size_bytes)}; sent {bytes_text(report.bytes_sent)})"
    ]
    if report.replaced_hash == report.tree_hash:
        lines.append("  it was current before")
    elif report.replaced_hash is not None:
        lines.append(f"  before: {_name(report.replaced, report.replaced_hash)}")
    if report.removed:
        lines.append(f"  removed: {', '.join(map(short, report.removed))}")
    if report.note:
        lines.append(f"  {report.note}")
    return "\n".join(lines)


def render_switched(report: SwitchReport) -> str:
    lines = [f"{report.where}: {_name(report.current, report.current.tree_hash)} is current"]
    if report.replaced_hash == report.current.tree_hash:
        lines.append("  it was current before")
    elif report.replaced_hash is not None:
        lines.append(f"  before: {_name(report.replaced, report.replaced_hash)}")
    return "\n".join(lines)


def render_shelved(there: Shelved) -> str:
    if not there.publications:
        return f"{there.where}\n  nothing is published there"
    rows = [("", "publication", "run", "step", "acceptance", "size", "published", "by")]
    for one in there.publications:
        mark = "current" if one.tree_hash == there.current else "before" if one.tree_hash == there.previous else ""
        rows.append(
            (
                mark,
                short(one.tree_hash),
                one.run_id or DASH,
                str(one.step) if one.step is not None else "export" if one.kind == "export" else DASH,
                DASH if one.acceptance_length is None else f"{one.acceptance_length:.2f}",
                bytes_text(one.size_bytes),
                utc_text(one.pushed_at_s),
                one.published_by or DASH,
            )
        )
    lines = [there.where, render_rows([[one_line(cell) for cell in row] for row in rows], indent="  ")]
    if there.current is not None and there.find(there.current) is None:
        lines.append(f"  current names {short(there.current)}, which is not there as a whole")
    if there.unreadable:
        lines.append(f"  with a record that cannot be read: {', '.join(map(short, there.unreadable))}")
    return "\n".join(lines)


def shelved_record(there: Shelved) -> dict[str, Any]:
    """For --json. Unknown is null."""
    return {"schema": SCHEMA, **plain_values(asdict(there))}


def publish_record(report: PublishReport | SwitchReport) -> dict[str, Any]:
    return {"schema": "orch.publish/1", **plain_values(asdict(report))}


def _name(one: Publication | None, tree_hash: str) -> str:
    if one is None:
        return short(tree_hash)
    step = "" if one.step is None else f", step {one.step}"
    return f"run {one.run_id or DASH}{step} ({short(one.tree_hash)})"
