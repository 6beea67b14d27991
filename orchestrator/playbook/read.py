"""Playbook text -> a frozen Playbook.

Rule: pure; every mistake that can be found in one go is reported in one InventoryError, before anything is run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

from pydantic import ValidationError

from orchestrator.errors import UsageError
from orchestrator.inventory.mistakes import Mistake, MistakeError, did_you_mean, error_for, printable
from orchestrator.inventory.read import not_said_yet
from orchestrator.inventory.wording import mistake_for
from orchestrator.inventory.yaml_lines import compose
from orchestrator.inventory.yaml_values import Path as Place
from orchestrator.inventory.yaml_values import Places, dotted, kind_of, plain_values
from orchestrator.playbook import relations, schema
from orchestrator.playbook.conditions import parse_condition
from orchestrator.playbook.durations import parse_duration
from orchestrator.playbook.model import Playbook, Retry, Step
from orchestrator.playbook.variables import substitute

BEGINS = "`steps:` and, below it, one step a line: `- deploy`"


def read_playbook(text: str, path: Path, given: Sequence[str] = ()) -> Playbook:
    """given: `name=value` words that replace variables. Raises InventoryError naming every mistake and its line, and
    UsageError for a variable that is not there."""
    try:
        values, places, mistakes = _values(text)
    except MistakeError as error:
        raise error_for(str(path), _without_secrets(text), [_with_quotes(error.mistake, text)]) from error
    variables = _variables(values, given, path)
    filled = _filled_in(values, variables)
    found = relations.find_unknown_names(values, places, variables)
    try:
        entry = schema.PlaybookEntry.model_validate(filled)
    except ValidationError as error:
        wrong = [_of_schema(details, places, values) for details in error.errors(include_url=False)]
        raise error_for(
            str(path), _without_secrets(text), [*mistakes, *not_said_yet([*wrong, *found], mistakes)]
        ) from error
    mistakes += not_said_yet([*found, *relations.find_mistakes(entry, places)], mistakes)
    if mistakes:
        raise error_for(str(path), _without_secrets(text), mistakes)
    return _playbook(entry, places, path, hashlib.sha256(text.encode()).hexdigest(), variables)


def _without_secrets(text: str) -> str:
    """As its lines are shown: an address that was written where only its place belongs is not repeated into logs."""
    return re.sub(r"(webhook[\"']?\s*:\s*[\"']?)(?!env:|file:|\$)[^\s\"',}]+", r"\1(not shown)", text)


def _values(text: str) -> tuple[object, Places, list[Mistake]]:
    root, refused = compose(text, BEGINS)
    values, places, unclear = plain_values(root)
    bare = set(_open_bare_steps(values, places))
    return values, places, [*refused, *(mistake for mistake in unclear if mistake.path not in bare)]


def _open_bare_steps(values: object, places: Places) -> list[str]:
    """`- deploy` and `- deploy:` mean a step without options: both become `deploy: {}`. Paths of what was so."""
    opened = []
    for section in schema.SECTIONS:
        steps = _list_at(values, section)
        for index, step in enumerate(steps):
            if isinstance(step, str) and step in schema.OPERATIONS:
                steps[index] = {step: {}}
                places.keys[(section, index, step)] = places.values[(section, index)]
            elif isinstance(step, dict):
                for name in [name for name, value in step.items() if value is None and name in schema.OPERATIONS]:
                    step[name] = {}
                    opened.append(dotted((section, index, name)))
    return opened


def _list_at(values: object, section: str) -> list[object]:
    """Empty when there is none."""
    found = values.get(section) if isinstance(values, dict) else None
    return found if isinstance(found, list) else []


def _variables(values: object, given: Sequence[str], path: Path) -> dict[str, object]:
    written = values.get("vars") if isinstance(values, dict) else None
    known: dict[str, object] = dict(written) if isinstance(written, dict) else {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--var needs NAME=VALUE, got {pair!r}", way_out="orch play FILE --var steps=100")
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(
                f"{path.name} has no variable `{printable(name)}`",
                evidence="`vars:` has " + (", ".join(known) or "none"),
                way_out=near,
            )
        known[name] = _like(known[name], name, text)
    return known


def _like(default: object, name: str, text: str) -> object:
    """The word as a value of the default's type. Raises UsageError."""
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    fits = isinstance(value, bool) if isinstance(default, bool) else whole if isinstance(default, int) else number
    if not fits:
        raise UsageError(
            f"--var {name}: expected a value like {json.dumps(default)}, got {printable(text)!r}",
            way_out=f"--var {name}={json.dumps(default)}",
        )
    return value


def _filled_in(values: object, variables: Mapping[str, object]) -> object:
    """`vars` themselves and conditions stay as they are written."""
    if not isinstance(values, dict):
        return values
    filled = {key: value if key == "vars" else substitute(value, variables) for key, value in values.items()}
    for section in schema.SECTIONS:
        for before, step in zip(_list_at(values, section), _list_at(filled, section), strict=True):
            if isinstance(step, dict) and isinstance(before, dict) and "when" in step:
                step["when"] = before["when"]
    return filled


def _of_schema(details: object, places: Places, values: object) -> Mistake:
    mistake = mistake_for(details, places, schema.keys_at)  # type: ignore[arg-type]
    place = cast("Place", details["loc"])  # type: ignore[index]
    if len(place) == 2 and place[0] in schema.SECTIONS and mistake.said.startswith("expected a mapping"):
        word = _at(values, place)
        known = did_you_mean(str(word), schema.OPERATIONS) if isinstance(word, str) else ""
        said = f"expected a step, found {kind_of(word)}"
        return Mistake(mistake.position, mistake.path, said, known or f"write one of {', '.join(schema.OPERATIONS)}")
    if len(place) == 3 and place[0] in schema.SECTIONS and mistake.said == "unknown key":
        near = did_you_mean(str(place[-1]), [*schema.OPERATIONS, *schema.COMMON])
        known = f"operations: {', '.join(schema.OPERATIONS)}\nof every step: {', '.join(schema.COMMON)}"
        return Mistake(mistake.position, mistake.path, "no operation and no key of a step", near or known)
    written = _at(values, place)
    if isinstance(written, str) and "${" in written and mistake.said.startswith("expected"):
        return Mistake(
            mistake.position,
            mistake.path,
            f"{mistake.said}, from `{printable(written)}`",
            mistake.write or "only a variable of `vars:` whose value fits can stand here",
        )
    return mistake


def _at(values: object, place: Place) -> object:
    for step in place:
        try:
            values = values[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def _with_quotes(mistake: Mistake, text: str) -> Mistake:
    """YAML stumbles over `{to: ${folder}}` and says so in its own words."""
    lines = text.split("\n")
    line = lines[mistake.position.line - 1] if mistake.position and mistake.position.line <= len(lines) else ""
    found = re.search(r"\{[^\"']*(\$\{[^}]*\})", line)
    if found is None:
        return mistake
    return Mistake(mistake.position, mistake.path, mistake.said, f'inside of {{ }} write "{found[1]}", in quotes')


def _playbook(
    entry: schema.PlaybookEntry, places: Places, path: Path, sha256: str, variables: Mapping[str, object]
) -> Playbook:
    sections: dict[str, tuple[Step, ...]] = {}
    names = iter(relations.step_names(entry))
    for section in schema.SECTIONS:
        steps = getattr(entry, section)
        sections[section] = tuple(
            _step(section, index, next(names), step, entry, places) for index, step in enumerate(steps)
        )
    return Playbook(path, sha256, entry.about or "", MappingProxyType(dict(variables)), **sections)


def _step(
    section: str, index: int, name: str, step: schema.StepEntry, entry: schema.PlaybookEntry, places: Places
) -> Step:
    operation, options = relations.operation_of(step)
    if isinstance(options, schema.GateOptions) and options.to is None:
        options = options.model_copy(update={"to": relations.published_to(getattr(entry, section)[index:])})
    position = places.of((section, index))
    return Step(
        section=section,
        number=index + 1,
        name=name,
        operation=operation,
        options=options,
        line=position.line if position else 0,
        when=parse_condition(step.when) if step.when else None,
        deadline_s=parse_duration(step.deadline) if step.deadline else None,
        retry=Retry(step.retry.times, parse_duration(step.retry.wait)) if step.retry else None,
        may_fail=step.on_failure == "continue",
        target=step.target or entry.target,
    )
