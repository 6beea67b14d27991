"""PURE: what was done about a target's environments, and which there are; as facts, lines and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.journal import utc_text
from orchestrator.ledger.run_environment import asked_by_lock, short_environment
from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, bytes_text, duration_text, number_text, render_rows

SCHEMA = "orch.environments/1"
HEADER = ("environment", "purpose", "state", "python", "packages", "size", "built", "by")


@dataclass(frozen=True)
class Synced:
    """One purpose's environment after `orch env sync`."""

    purpose: str
    environment: str
    already_there: bool
    packages: int
    wheel_bytes: int
    files_sent: int
    bytes_sent: int
    took_s: float | None
    """The build; None: there was none."""
    before: str | None
    """What was current before; None: nothing was."""
    switched: bool
    """False: the one before stays current, as was asked for."""
    dry_run: bool


@dataclass(frozen=True)
class SyncReport:
    target: str
    environments: tuple[Synced, ...]


@dataclass(frozen=True)
class UsedReport:
    target: str
    purpose: str
    environment: str
    before: str | None
    instead_of: str | None
    """What the inventory's lock asks for, when that is another one."""
    live_run: bool


@dataclass(frozen=True)
class EnvironmentRow:
    environment: str
    path: str
    purpose: str | None
    """That it was first built for."""
    current_for: tuple[str, ...]
    before_for: tuple[str, ...]
    """Purposes that `orch env rollback` would take back to it."""
    live: bool
    complete: bool
    python: str | None
    """Path of its interpreter."""
    python_version: str | None
    packages: int | None
    bytes: int | None
    built_at: float | None
    built_by: str | None

    @property
    def state(self) -> str:
        if not self.complete:
            return "not complete"
        words = ["current"] if self.current_for else ["previous"] if self.before_for else []
        words += ["in use"] if self.live else []
        return ", ".join(words) or "unused"


@dataclass(frozen=True)
class EnvironmentsReport:
    target: str
    environments: tuple[EnvironmentRow, ...]
    not_synced: tuple[str, ...]
    """Purposes whose lock in the inventory asks for another environment than the current one."""


@dataclass(frozen=True)
class RemovedReport:
    target: str
    removed: tuple[str, ...]


def parse_environments(target: str, answer: Mapping[str, Any], wanted: Mapping[str, str]) -> EnvironmentsReport:
    """answer: of the agent's op env_list; wanted: purpose -> what the inventory's lock asks for."""
    current = {purpose: as_mapping(entry) for purpose, entry in as_mapping(answer.get("current")).items()}
    rows = []
    for name, record in as_mapping(answer.get("environments")).items():
        facts = as_mapping(record)
        requirements = as_mapping(facts.get("requirements"))
        rows.append(
            EnvironmentRow(
                environment=name,
                path=f"{answer.get('store')}/{name}",
                purpose=_line(facts.get("purpose")),
                current_for=tuple(sorted(purpose for purpose, entry in current.items() if entry.get("id") == name)),
                before_for=tuple(
                    sorted(purpose for purpose, entry in current.items() if entry.get("previous") == name)
                ),
                live=answer.get("live") == name,
                complete=record is not None,
                python=_line(facts.get("python")),
                python_version=_line(facts.get("python_version")),
                packages=len(requirements) if record is not None else None,
                bytes=as_int(facts.get("bytes")),
                built_at=as_float(facts.get("built_at")),
                built_by=_line(facts.get("built_by")),
            )
        )
    rows.sort(key=lambda row: (not row.current_for, -(row.built_at or 0.0), row.environment))
    not_synced = (purpose for purpose, name in wanted.items() if not _is_meant(current.get(purpose), name))
    return EnvironmentsReport(target, tuple(rows), tuple(sorted(not_synced)))


def _is_meant(entry: Mapping[str, object] | None, wanted: str) -> bool:
    if entry is None:
        return False
    return wanted in (asked_by_lock(as_str(entry.get("id")) or ""), entry.get("instead_of"))


def _line(value: object) -> str | None:
    text = as_str(value)
    return None if text is None else one_line(text)


def render_sync(report: SyncReport) -> str:
    return "\n".join(f"{report.target}: {_synced_text(one)}" for one in report.environments)


def _synced_text(one: Synced) -> str:
    what = f"{one.purpose}: environment {short_environment(one.environment)}"
    about = f"{one.packages} package{'s' if one.packages != 1 else ''}"
    sent = f"{one.files_sent} file{'' if one.files_sent == 1 else 's'}, {bytes_text(one.bytes_sent)}"
    if one.dry_run:
        if one.already_there:
            return f"{what} is there already ({about}, now {short_environment(one.before)})"
        return f"{what} would be built ({about}, now {short_environment(one.before)}); would send {sent}"
    if not one.switched:
        return f"{what} is complete ({about}); {short_environment(one.before)} stays current"
    was = "" if one.before == one.environment else f" (was {short_environment(one.before)})"
    if one.already_there:
        return f"{what} is current{was}; it was there already, 0 bytes sent"
    return f"{what} is current{was}; {about}, sent {sent}, built in {duration_text(one.took_s)}"


def render_used(report: UsedReport) -> str:
    text = f"{report.target}: {report.purpose}: environment {short_environment(report.environment)} is current"
    if report.before != report.environment:
        text += f" (was {short_environment(report.before)})"
    if report.instead_of:
        asked = short_environment(report.instead_of)
        text += f"\n  the inventory's lock asks for {asked}; `orch env sync` goes back to that"
    if report.live_run:
        text += "\n  a run is live and keeps the environment it was started in"
    return text


def render_removed(report: RemovedReport) -> str:
    if not report.removed:
        return f"{report.target}: no environment is unused"
    return f"{report.target}: removed " + ", ".join(short_environment(name) for name in report.removed)


def render_environments(report: EnvironmentsReport) -> str:
    if not report.environments:
        return f"{report.target}: no environment made by orch"
    rows: list[tuple[str, ...]] = [HEADER]
    for row in report.environments:
        rows.append(
            (
                short_environment(row.environment),
                ", ".join(row.current_for) or row.purpose or DASH,
                row.state,
                row.python_version or DASH,
                number_text(row.packages),
                bytes_text(row.bytes),
                utc_text(row.built_at),
                row.built_by or DASH,
            )
        )
    lines = [f"{report.target}:", render_rows(rows, "  ")]
    lines += [f"  {purpose}: not what the inventory's lock asks for (orch env sync)" for purpose in report.not_synced]
    return "\n".join(lines)


def environments_record(report: EnvironmentsReport) -> dict[str, Any]:
    record = asdict(report)
    for row, plain in zip(report.environments, record["environments"], strict=True):
        plain["state"] = row.state
    return {"schema": SCHEMA, **plain_values(record)}
