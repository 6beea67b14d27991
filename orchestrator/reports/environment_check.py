"""PURE: what `orch env check` found, as lines and as JSON (schema orch.env-check/1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.probes.environment import EnvironmentFacts, Expectation
from orchestrator.probes.environment_check import passes
from orchestrator.probes.environment_finding import ERROR, NOTE, WARNING, EnvironmentFinding
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import bytes_text, duration_text

SCHEMA = "orch.env-check/1"
_LINE = 400


@dataclass(frozen=True)
class CheckReport:
    target: str
    facts: EnvironmentFacts
    expected: Expectation | None
    findings: tuple[EnvironmentFinding, ...]

    @property
    def passed(self) -> bool:
        return passes(self.findings)


@dataclass(frozen=True)
class BaselineReport:
    target: str
    prefix: str
    path: str
    packages: int
    replaced: bool
    findings: tuple[EnvironmentFinding, ...]
    """What is wrong with it already, without a comparison."""


def render_check(report: CheckReport) -> str:
    facts = report.facts
    torch = f", torch {facts.torch_version}" if facts.torch_version else ""
    against = f"against {report.expected.label}" if report.expected else "against nothing: there is no baseline"
    lines = [f"{report.target}: {facts.prefix} (Python {facts.version}{torch}, {len(facts.used())} packages) {against}"]
    for finding in report.findings:
        lines.append(f"  {finding.severity:<7}  {one_line(finding.text, _LINE)}")
        lines += [f"             {one_line(detail, _LINE)}" for detail in finding.details]
        lines += [f"           -> {one_line(finding.way_out, _LINE)}"] if finding.way_out else []
    counts = {severity: sum(one.severity == severity for one in report.findings) for severity in (ERROR, WARNING, NOTE)}
    verdict = "passes" if report.passed else "does not pass"
    told = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count)
    lines.append(f"  {verdict}{': ' + told if told else ''}{_looked_at(facts)}")
    return "\n".join(lines)


def _looked_at(facts: EnvironmentFacts) -> str:
    files = facts.files
    if files is None:
        return ""
    hashed = f"{files.hashed} of {files.files} files hashed ({bytes_text(files.bytes_hashed)})"
    return f"; {hashed} in {duration_text(facts.took_s)}"


def check_record(report: CheckReport) -> dict[str, Any]:
    facts, files = report.facts, report.facts.files
    record: dict[str, Any] = plain_values(
        {
            "schema": SCHEMA,
            "target": report.target,
            "passed": report.passed,
            "python": facts.python,
            "prefix": facts.prefix,
            "python_version": facts.version,
            "torch": {"version": facts.torch_version, "cuda": facts.torch_cuda},
            "driver": facts.driver,
            "against": {"kind": report.expected.kind, "label": report.expected.label} if report.expected else None,
            "packages": {key: package.version for key, package in sorted(facts.used().items())},
            "findings": [asdict(finding) for finding in report.findings],
            "files": None
            if files is None
            else {
                "files": files.files,
                "hashed": files.hashed,
                "bytes_hashed": files.bytes_hashed,
                "not_hashed": files.not_hashed,
                "by_age": files.by_age,
                "changed": files.changed_files,
                "missing": files.missing_files,
            },
            "took_s": facts.took_s,
        }
    )
    return record


def render_baseline(report: BaselineReport) -> str:
    lines = [f"{report.target}: {report.packages} packages of {report.prefix} recorded in {report.path}"]
    lines += ["  in place of the baseline before"] if report.replaced else []
    wrong = [finding for finding in report.findings if finding.severity == ERROR]
    lines += [f"  {one_line(finding.text, _LINE)}" for finding in wrong]
    if wrong:
        lines.append("  It was recorded as it is; what is wrong with it by itself is shown by every check.")
    return "\n".join(lines)
