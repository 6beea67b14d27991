"""PURE: `orch doctor --setup`, a row for each thing that a launch needs; as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.diagnosis.setup import Row
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values

SCHEMA = "orch.setup/1"
WORDS = {True: "ok", False: "wrong", None: "-"}


@dataclass(frozen=True)
class SetupReport:
    target: str
    label: str
    rows: tuple[Row, ...]

    @property
    def is_fit(self) -> bool:
        return all(row.ok is not False for row in self.rows)


def render_setup(report: SetupReport) -> str:
    wide = max(len(row.name) for row in report.rows)
    lines = [f"{report.label}: {'fit' if report.is_fit else 'not fit yet'}"]
    for row in report.rows:
        lines.append(f"  {WORDS[row.ok]:<5}  {row.name:<{wide}}  {one_line(row.text, 300)}")
        lines += [f"         {'':<{wide}}  -> {one_line(line, 300)}" for line in row.way_out.splitlines()]
    return "\n".join(lines)


def setup_record(report: SetupReport) -> dict[str, Any]:
    """For --json. `ok` null: it could not be looked at, or need not be."""
    about = {"schema": SCHEMA, "target": report.target, "fit": report.is_fit}
    plain: dict[str, Any] = plain_values({**about, "rows": [asdict(row) for row in report.rows]})
    return plain
