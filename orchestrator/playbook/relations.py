"""What concerns several keys or several steps of a playbook.

Rule: pure; gives every mistake, with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.errors import UsageError
from orchestrator.inventory.mistakes import Mistake, did_you_mean, printable
from orchestrator.inventory.model import Inventory
from orchestrator.inventory.schema import Entry
from orchestrator.inventory.select import select_targets
from orchestrator.inventory.yaml_values import Path, Places, dotted
from orchestrator.operations.where import parse_where
from orchestrator.playbook import schema
from orchestrator.playbook.conditions import HELP, parse_condition
from orchestrator.playbook.model import Playbook, Step
from orchestrator.playbook.variables import ALWAYS_KNOWN, AT_THE_END, BUILT_IN, SETS, references

REPEATABLE = (
    *("deploy", "env sync", "env check", "warmup", "launch", "stop", "status", "doctor", "diff", "pull", "expect"),
    *("wait", "evaluate", "gate", "publish", "notify"),
)
"""What is the same when it is done twice. A launch is among them because its run id is chosen first."""
AFTER_FAILURE = ("stop", "status", "doctor", "diff", "pull", "notify", "run", "reset", "cache save")
"""What may stand in on_failure and always: nothing that starts or publishes anything."""
OF_A_RUN = ("expect", "wait", "evaluate")
OF_ONE_TARGET = ("launch", "expect", "wait", "evaluate", "gate", "publish", "cache seed", "cache save")


def find_unknown_names(values: object, places: Places, variables: Mapping[str, object]) -> list[Mistake]:
    """Every `${name}` that is neither a variable nor built in, and built-in ones that nothing has set yet."""
    if not isinstance(values, dict):
        return []
    mistakes = [
        Mistake(places.keys.get(("vars", name)), f"vars.{printable(name)}", "is built in and cannot be a variable")
        for name in variables
        if name in BUILT_IN
    ]
    for name, value in variables.items():
        if any(True for _ in references(value)):
            said = "a variable's value may not hold `${}`: variables know nothing of each other"
            mistakes.append(Mistake(places.of(("vars", name)), f"vars.{name}", said, "write the value out"))
    known = {*variables, *ALWAYS_KNOWN}
    for section in schema.SECTIONS:
        steps = values.get(section)
        for index, step in enumerate(steps) if isinstance(steps, list) else ():
            here = known if section == "steps" else {*variables, *BUILT_IN}
            for path, text in _texts(step, (section, index)):
                mistakes += [_unknown(name, path, places, variables) for name in references(text) if name not in here]
            known |= (
                {name for operation in step for name in SETS.get(operation, ())} if isinstance(step, dict) else set()
            )
    return mistakes


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _unknown(name: str, path: Path, places: Places, variables: Mapping[str, object]) -> Mistake:
    shown = f"`${{{printable(name)}}}`"
    if name in AT_THE_END:
        said, write = f"{shown} is known at the end only", "it may stand in `on_failure:` and `always:`"
    elif name in BUILT_IN:
        setters = " or ".join(f"`{operation}`" for operation, names in SETS.items() if name in names)
        said, write = f"{shown} is not known here", f"put a step {setters} before it"
    else:
        known = [*variables, *BUILT_IN]
        said = f"there is no variable {shown}"
        write = did_you_mean(name, known) or f"write it into `vars:`, or use one of {', '.join(known)}"
    return Mistake(places.of(path), dotted(path), said, write)


def operation_of(step: schema.StepEntry) -> tuple[str, Entry]:
    """(as it is written, its options). The step has exactly one."""
    ((operation, options),) = _operations(step)
    return operation, options


def _operations(step: schema.StepEntry) -> list[tuple[str, Entry]]:
    found = [(written, getattr(step, field)) for written, field in schema.OPERATIONS.items()]
    return [(written, options) for written, options in found if options is not None]


def step_names(entry: schema.PlaybookEntry) -> list[str]:
    """Given ones, else the operation's; a second `stop` is `stop 2`. In the order of the file's sections."""
    steps = [step for section in schema.SECTIONS for step in getattr(entry, section)]
    taken = {step.name for step in steps if step.name}
    names = []
    for step in steps:
        name = base = step.name or operation_of(step)[0]
        number = 1
        while not step.name and name in taken:
            number += 1
            name = f"{base} {number}"
        taken.add(name)
        names.append(name)
    return names


def find_mistakes(entry: schema.PlaybookEntry, places: Places) -> list[Mistake]:
    mistakes: list[Mistake] = []
    names: dict[str, Path] = {}
    before: list[str] = []
    judged: set[str] = set()
    """Places whose published one a gate has looked at."""
    for section in schema.SECTIONS:
        for index, step in enumerate(getattr(entry, section)):
            path: Path = (section, index)
            operations = _operations(step)
            if len(operations) != 1:
                mistakes.append(_not_one(operations, path, places))
                continue
            if step.name is not None:
                if step.name in names:
                    first = places.of(names[step.name])
                    said = f"two steps are named `{step.name}`" + (f" (first on line {first.line})" if first else "")
                    mistakes.append(Mistake(places.of((*path, "name")), dotted((*path, "name")), said, "name it anew"))
                names.setdefault(step.name, (*path, "name"))
            after = getattr(entry, section)[index:]
            mistakes += _of_step(
                step, operations[0], path, places, before if section == "steps" else None, published_to(after)
            )
            if step.publish is not None and section == "steps" and "gate" in before and step.publish.to not in judged:
                mistakes.append(_not_judged(step.publish.to, path, places))
            if step.gate is not None and (place := step.gate.to or published_to(after)) is not None:
                judged.add(place)
            before.append(operations[0][0])
    return mistakes


def _not_judged(to: str, path: Path, places: Places) -> Mistake:
    said = f"no `gate` before it compares with what is published in {printable(to)}"
    here = (*path, "publish", "to")
    return Mistake(places.of(here), dotted(here), said, f'put `gate: {{to: "{printable(to)}"}}` before it')


def published_to(steps: Sequence[schema.StepEntry]) -> str | None:
    """Where the first of them that publishes does so."""
    return next((step.publish.to for step in steps if step.publish is not None), None)


def _not_one(operations: list[tuple[str, Entry]], path: Path, places: Places) -> Mistake:
    if not operations:
        return Mistake(
            places.of(path), dotted(path), "a step without an operation", f"write one of {', '.join(schema.OPERATIONS)}"
        )
    second = operations[1][0]
    position = places.keys.get((*path, second))
    named = " and ".join(f"`{operation}`" for operation, _ in operations)
    return Mistake(position, dotted(path), f"one step does one thing, this one has {named}", f"write `- {second}:`")


def _of_step(
    step: schema.StepEntry,
    operation_options: tuple[str, Entry],
    path: Path,
    places: Places,
    before: list[str] | None,
    published_to: str | None,
) -> list[Mistake]:
    """before: operations of the steps before it; None: it is done at the end only. published_to: by a later step."""
    operation, options = operation_options
    found: list[Mistake] = []

    def refuse(said: str, write: str = "", *keys: str) -> None:
        named = keys[-1:] in ((operation,), ("retry",))
        position = (places.keys.get((*path, *keys)) if named else None) or places.of((*path, *keys))
        found.append(Mistake(position, dotted((*path, *keys)), said, write))

    if step.when is not None:
        try:
            parse_condition(step.when)
        except ValueError as error:
            refuse(str(error), HELP, "when")
    if step.retry is not None and operation not in REPEATABLE:
        refuse(f"`{operation}` is not safe to repeat", f"these are: {', '.join(REPEATABLE)}", "retry")
    if before is None and operation not in AFTER_FAILURE:
        refuse(f"`{operation}` has no place here", f"these have: {', '.join(AFTER_FAILURE)}", operation)
    if before is None and step.on_failure == "stop" and "on_failure" in step.model_fields_set:
        refuse("what is done at the end always goes on", "remove it", "on_failure")
    if operation in OF_A_RUN and before is not None and "launch" not in before:
        refuse(
            f"`{operation}` is about the run of this play, and nothing launches one before",
            "put `launch` before it",
            operation,
        )
    if operation == "gate" and step.on_failure == "continue":
        refuse("what a gate refuses is never published", "remove it; `stop` is the default", "on_failure")
    for needed in {"gate": ["evaluate"], "publish": ["gate"]}.get(operation, []):
        if before is not None and needed not in before:
            refuse(f"`{operation}` stands without `{needed}` before it", f"put `{needed}` before it", operation)
    if isinstance(options, schema.GateOptions) and options.to is None and published_to is None:
        refuse("where is what is published?", "write `to:`, or put `publish` after it", operation)
    for said, write, *keys in _of_options(options):
        refuse(said, write, operation, *keys)
    return found


def _of_options(options: Entry) -> Iterator[tuple[str, ...]]:
    match options:
        case schema.WaitOptions() if (options.until is None) == (options.step is None):
            yield "wait for what?", "write `until: finished`, `until: first-step` or `step: 1000`, one of them"
        case schema.ExpectOptions() if not (
            options.percent_of_last_good or options.tokens_per_s or options.no_finding_above
        ):
            yield "expect what?", "write `percent_of_last_good: 85`, `tokens_per_s:` or `no_finding_above:`"
        case schema.NotifyOptions() if (options.command is None) == (options.webhook is None):
            yield "notify whom?", "write `command:` or `webhook:`, one of them"
        case schema.ResetOptions() if not (options.kill_gpus or options.clear_cache):
            yield "reset what?", "write `kill_gpus: true`, `clear_cache: true`, or both"
        case schema.ResetOptions() if options.seed and not options.clear_cache:
            yield "the cache is seeded anew only after it was cleared", "write `clear_cache: true`", "seed"
        case schema.EvaluateOptions() if options.read == "result" and (options.checkpoint or options.settings):
            key = "checkpoint" if options.checkpoint else "settings"
            yield f"`{key}` belongs to a run of its own", "write `read: own run`", key
        case schema.NotifyOptions() if options.webhook and not options.webhook.startswith(("env:", "file:")):
            yield "the address is a secret and does not stand in a playbook", "write env:NAME or file:PATH", "webhook"


def targets_of(playbook: Playbook, inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Step name -> names of its targets. Raises UsageError naming the line."""
    found = {}
    for step in playbook.all_steps:
        try:
            names = tuple(target.name for target in select_targets(inventory, [step.target] if step.target else []))
        except UsageError as error:
            way_out = error.way_out
            if not step.target and inventory.targets:
                way_out = "write `target: NAME` at the playbook's top, or in the step"
            raise _of_target(playbook, step, error.what, error.evidence, way_out) from error
        if len(names) > 1 and step.operation in OF_ONE_TARGET:
            said = f"`{step.operation}` takes one target, and `{step.target}` is {len(names)}"
            raise _of_target(playbook, step, said, ", ".join(names), "name one: `target:` in the step")
        found[step.name] = names
        _check_place(playbook, step, inventory)
    return found


def _check_place(playbook: Playbook, step: Step, inventory: Inventory) -> None:
    """Where something is published can be read now, unless it depends on what the play finds out."""
    to = (
        getattr(step.options, "to", None)
        if isinstance(step.options, schema.GateOptions | schema.PublishOptions)
        else None
    )
    if to is None or "${" in to:
        return
    try:
        parse_where(to, inventory)
    except UsageError as error:
        raise _of_target(playbook, step, error.what, error.evidence, error.way_out) from error


def _of_target(playbook: Playbook, step: Step, what: str, evidence: str, way_out: str) -> UsageError:
    where = f"{playbook.path}:{step.line}: step `{step.name}`"
    return UsageError(f"{where}: {what}; nothing was done", evidence=evidence, way_out=way_out)
