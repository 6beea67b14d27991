"""How a play went, in the few lines that a notification holds; as JSON.

Rule: pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from orchestrator.playbook.model import Playbook
from orchestrator.playbook.progress import Progress, failure_record
from orchestrator.playbook.variables import text_of
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import rate_text

SCHEMA = "orch.play/1"
TOLD_LINES = 5
TRACEBACK = "Traceback (most recent call last)"


def summary_text(playbook: Playbook, progress: Progress, known: Mapping[str, object]) -> str:
    failure = progress.failure
    name, target = playbook.path.stem, known.get("target")
    if failure is not None:
        lines = [f"{name} on {target} failed in `{failure.step}`: {failure.what}"]
        lines += [f"  {line}" for line in _told(failure.evidence)]
    else:
        lines = [f"{name} on {target} is done"]
    lines += [f"  {label}: {text}" for label, text in _facts(progress)]
    lines += [f"  note: {step}: {text.splitlines()[0]}" for step, text in progress.warnings.items()]
    if failure is not None:
        ways = [*failure.way_out.splitlines(), *go_on_lines(playbook, progress, shlex.quote(str(playbook.path)))]
        lines += [f"  -> {line}" for line in ways]
    return "\n".join(lines)


def _told(evidence: str) -> list[str]:
    """Its beginning; of a traceback the end, where Python says what it was."""
    lines = evidence.splitlines()
    if any(line.startswith(TRACEBACK) for line in lines):
        return lines[-TOLD_LINES:]
    return lines[:TOLD_LINES]


def _facts(progress: Progress) -> list[tuple[str, str]]:
    values = progress.values
    rows = []
    if values.get("run_id"):
        rows.append(("run", text_of(values["run_id"])))
    if isinstance(values.get("throughput"), int | float):
        rows.append(("throughput", rate_text(float(values["throughput"]))))  # type: ignore[arg-type]
    if values.get("tau") is not None:
        before = values.get("published_tau")
        rows.append(("tau", text_of(values["tau"]) + ("" if before is None else f" (published: {text_of(before)})")))
    if values.get("published"):
        rows.append(("published", text_of(values["published"])))
    return rows


def go_on_lines(playbook: Playbook, progress: Progress, file: str) -> list[str]:
    """What to do after a failure: go on at the step that failed, or begin anew."""
    failure = progress.failure
    if failure is None or failure.step not in [step.name for step in playbook.steps]:
        return []
    lines = [f"orch play {file} --from {shlex.quote(failure.step)}   goes on there, once that is mended"]
    if playbook.steps[0].name != failure.step:
        lines.append(f"orch play {file}   begins anew")
    return lines


def play_record(playbook: Playbook, progress: Progress) -> dict[str, Any]:
    steps = [
        {"section": step.section, "name": step.name, "operation": step.operation, "how": progress.ended[step.name],
         "said": progress.said.get(step.name, "")}
        for step in playbook.all_steps
        if step.name in progress.ended
    ]  # fmt: skip
    failure = progress.failure
    values = {name: value for name, value in progress.values.items() if name != "summary"}
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "play": progress.play_id,
        "playbook": str(playbook.path),
        "outcome": progress.over,
        "failure": None if failure is None else {"step": failure.step, **failure_record(failure)},
        "values": values,
        "warnings": dict(progress.warnings),
        "steps": steps,
    }
    plain: dict[str, Any] = plain_values(record)
    return plain
