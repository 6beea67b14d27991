"""PURE: what is wrong with a target and its run, the cause first; as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.diagnosis.diagnose import Diagnosis
from orchestrator.diagnosis.finding import INFO, Finding, worst
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values

SCHEMA = "orch.doctor/1"


@dataclass(frozen=True)
class DoctorReport:
    target: str
    label: str
    run_id: str | None
    """Whose health was asked; None: there is no run yet."""
    good_id: str | None
    """The last good run before it, that it was compared with."""
    good_why: str
    diagnosis: Diagnosis

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.diagnosis.findings

    @property
    def worst(self) -> str | None:
        """critical, warning, info; None: nothing was found."""
        return worst(self.findings)

    @property
    def is_well(self) -> bool:
        """Nothing above info."""
        return self.worst in (None, INFO)


def render_doctor(report: DoctorReport) -> str:
    lines = [_head(report)]
    for finding in report.findings:
        lines += ["", *finding_lines(finding)]
    lines.append("")
    if report.diagnosis.healthy:
        lines.append(f"healthy: {'; '.join(one_line(text, 200) for text in report.diagnosis.healthy)}")
    missed: dict[str, list[str]] = {}
    for one in report.diagnosis.not_looked:
        missed.setdefault(one_line(one.why, 160), []).append(one.what)
    if missed:
        told = [f"{', '.join(whats)} ({why})" for why, whats in missed.items()]
        lines.append(f"could not look at: {'; '.join(told)}")
    return "\n".join(lines).rstrip()


def finding_lines(finding: Finding) -> list[str]:
    lines = [finding.line]
    lines += [f"    {one_line(text, 300)}" for text in finding.evidence]
    lines.append(f"    cause: {one_line(finding.cause, 400)}")
    lines.append(f"    next: {one_line(finding.next_step, 400)}")
    if finding.command is not None:
        lines.append(f"      {one_line(finding.command, 400)}")
    return lines


def doctor_record(report: DoctorReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    plain: dict[str, Any] = plain_values(
        {
            "schema": SCHEMA,
            "target": report.target,
            "run_id": report.run_id,
            "good": None if report.good_id is None else {"run_id": report.good_id, "why": report.good_why},
            "worst": report.worst,
            "findings": [{**asdict(one), "rank": number} for number, one in enumerate(report.findings, start=1)],
            "healthy": list(report.diagnosis.healthy),
            "not_looked": [asdict(one) for one in report.diagnosis.not_looked],
        }
    )
    return plain


def _head(report: DoctorReport) -> str:
    count = sum(one.severity != INFO for one in report.findings)
    found = {0: "nothing is wrong that can be seen", 1: "1 finding"}.get(count, f"{count} findings")
    run = f", run {report.run_id}" if report.run_id else ", no run yet"
    good = f", beside the last good run {report.good_id} ({report.good_why})" if report.good_id else ""
    return one_line(f"{report.label}{run}{good}: {found}", 400)
