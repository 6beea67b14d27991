"""What a playbook will do: what `orch play --dry-run` prints.

Rule: pure; nothing is asked, so what only the play itself finds out is shown as `${name}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.inventory.model import Inventory
from orchestrator.playbook.begin import Beginning
from orchestrator.playbook.durations import duration_words
from orchestrator.playbook.model import Playbook, Step
from orchestrator.playbook.progress import Progress
from orchestrator.playbook.schema import SECTIONS
from orchestrator.playbook.words import settings_words, will
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import render_rows

SCHEMA = "orch.play-plan/1"
TITLES = {"steps": "steps", "on_failure": "on failure", "always": "always, at the end"}


@dataclass(frozen=True)
class PlannedStep:
    step: Step
    targets: tuple[str, ...]
    will: str
    """What it will do, in a sentence."""
    how: tuple[str, ...]
    """When, how long, how often."""
    left_out: str
    """Why it will not be done; empty: it will."""


@dataclass(frozen=True)
class Plan:
    playbook: Playbook
    told: tuple[str, ...]
    """How it begins, when it does not begin at its beginning."""
    steps: tuple[PlannedStep, ...]


def plan_play(
    playbook: Playbook,
    inventory: Inventory,
    targets: Mapping[str, tuple[str, ...]],
    beginning: Beginning,
    earlier: Progress,
) -> Plan:
    """earlier: the play that is gone on with, if it is."""
    ended = earlier.ended if beginning.continues else {}
    steps = tuple(
        PlannedStep(
            step=step,
            targets=targets[step.name],
            will=will(step.options, inventory.targets[targets[step.name][0]]),
            how=tuple(_how(step)),
            left_out=f"{ended[step.name]} before"
            if step.name in ended
            else "before --from"
            if step.name in beginning.before
            else "",
        )
        for step in playbook.all_steps
    )
    return Plan(playbook, beginning.told, steps)


def _how(step: Step) -> Iterator[str]:
    if step.when is not None:
        yield f"when {step.when.text}"
    if step.deadline_s is not None:
        yield f"within {duration_words(step.deadline_s)}"
    if step.retry is not None:
        yield f"{step.retry.times} more tries, the first after {duration_words(step.retry.wait_s)}"
    if step.may_fail:
        yield "its failure ends nothing"


def render_plan(plan: Plan) -> str:
    playbook = plan.playbook
    lines = [f"{playbook.path.name}" + (f": {playbook.about}" if playbook.about else "")]
    lines += [f"  {line}" for line in plan.told]
    if playbook.variables:
        lines.append(f"  variables: {settings_words(playbook.variables)}")
    for section in SECTIONS:
        steps = [planned for planned in plan.steps if planned.step.section == section]
        if steps:
            lines += [f"{TITLES[section]}:", render_rows([row for one in steps for row in _rows(one)], "  ")]
    return "\n".join(lines)


def _rows(planned: PlannedStep) -> Iterator[tuple[str, ...]]:
    step = planned.step
    what = f"[{planned.left_out}] {planned.will}" if planned.left_out else planned.will
    about = step.operation if step.name == step.operation else f"{step.name} ({step.operation})"
    yield str(step.number), about, ", ".join(planned.targets), what
    if planned.how:
        yield "", "", "", "; ".join(planned.how)


def plan_record(plan: Plan) -> dict[str, Any]:
    steps = [
        {
            "section": planned.step.section,
            "number": planned.step.number,
            "name": planned.step.name,
            "operation": planned.step.operation,
            "targets": list(planned.targets),
            "options": planned.step.options.model_dump(by_alias=True),
            "will": planned.will,
            "when": planned.step.when.text if planned.step.when else None,
            "deadline_s": planned.step.deadline_s,
            "retry": None if planned.step.retry is None else vars(planned.step.retry),
            "may_fail": planned.step.may_fail,
            "left_out": planned.left_out or None,
        }
        for planned in plan.steps
    ]
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "playbook": str(plan.playbook.path),
        "variables": dict(plan.playbook.variables),
        "begins": list(plan.told),
        "steps": steps,
    }
    plain: dict[str, Any] = plain_values(record)
    return plain
