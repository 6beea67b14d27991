"""How a play begins: afresh, from a step, or where the last one was cut off.

Rule: pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import OrchError, OutcomeUnknownError, UsageError
from orchestrator.inventory.mistakes import did_you_mean
from orchestrator.ledger.journal import utc_text
from orchestrator.playbook.model import Playbook, Step
from orchestrator.playbook.progress import DONE, Progress
from orchestrator.playbook.relations import REPEATABLE
from orchestrator.playbook.schema import RunOptions
from orchestrator.playbook.variables import AT_THE_END, LET_THROUGH, SETS

RESUMABLE = (*REPEATABLE, "cache seed", "cache save")
"""What may be done again when nobody knows how it ended."""


@dataclass(frozen=True)
class Beginning:
    continues: bool
    """The same play goes on, in its own record."""
    before: frozenset[str]
    """Steps that are left out because the play begins after them."""
    values: Mapping[str, object]
    """Built-in variables that are known from before."""
    told: tuple[str, ...]
    """What was found, for whoever looks on."""


def choose_beginning(
    playbook: Playbook,
    targets: Mapping[str, tuple[str, ...]],
    inventory: Path,
    earlier: Progress,
    start: str | None,
    *,
    afresh: bool,
) -> Beginning:
    """start: --from. Raises UsageError (no such step, or the playbook is another one since), OutcomeUnknownError (what
    was under way may not be done again)."""
    if start is not None:
        return _from(playbook, earlier, start)
    if afresh or not earlier.play_id or earlier.over is not None:
        return Beginning(False, frozenset(), {}, _told_of_last(earlier, afresh))
    _require_same(playbook, targets, inventory, earlier)
    step = next((step for step in playbook.all_steps if step.name == earlier.open_step), None)
    if step is not None and not may_be_done_again(step):
        raise _unknown(playbook, step, earlier)
    where = f"in step `{step.name}`" if step is not None else f"after step `{_last(earlier)}`" if earlier.ended else ""
    done = sum(how == DONE for how in earlier.ended.values())
    when = utc_text(earlier.last_at_s)
    told = f"play {earlier.play_id} was cut off {where} at {when}, {done} steps were done: it goes on"
    return Beginning(True, frozenset(), {}, (" ".join(told.split()),))


def may_be_done_again(step: Step) -> bool:
    if isinstance(step.options, RunOptions):
        return step.options.repeatable
    return step.operation in RESUMABLE


def _from(playbook: Playbook, earlier: Progress, start: str) -> Beginning:
    names = [step.name for step in playbook.steps]
    if start not in names:
        raise UsageError(
            f"{playbook.path.name} has no step `{start}`",
            evidence=", ".join(names),
            way_out=did_you_mean(start, names),
        )
    before = frozenset(names[: names.index(start)])
    told = [f"begins at `{start}`; {len(before)} steps before it are left out"]
    found_anew = {name for step in playbook.steps[len(before) :] for name in SETS.get(step.operation, ())}
    if any(step.operation == "gate" for step in playbook.steps[len(before) :]):
        found_anew.add(LET_THROUGH)
    values = {
        name: value
        for name, value in earlier.values.items()
        if value is not None and name not in found_anew and name not in AT_THE_END
    }
    if values:
        known = ", ".join(f"{name} {value}" for name, value in sorted(values.items()) if name in ("run_id", "tau"))
        told.append(f"what play {earlier.play_id} found out is taken over" + (f": {known}" if known else ""))
    return Beginning(False, before, values, tuple(told))


def _require_same(
    playbook: Playbook, targets: Mapping[str, tuple[str, ...]], inventory: Path, earlier: Progress
) -> None:
    changed = []
    if earlier.header.get("sha256") != playbook.sha256:
        changed.append("its text")
    if earlier.header.get("vars") != dict(playbook.variables):
        changed.append("its variables (--var)")
    if earlier.header.get("targets") != {name: list(names) for name, names in targets.items()}:
        changed.append("its targets")
    if earlier.header.get("inventory") != str(inventory):
        changed.append("its inventory (-i)")
    if changed:
        at = earlier.open_step or _last(earlier)
        raise UsageError(
            f"play {earlier.play_id} of {playbook.path.name} was cut off at `{at}`, and since then "
            f"{' and '.join(changed)} changed; nothing was done",
            evidence=_run_of(earlier),
            way_out=f"orch play {playbook.path} --from STEP     goes on there with what is known\n"
            f"orch play {playbook.path} --new           begins anew",
        )


def _unknown(playbook: Playbook, step: Step, earlier: Progress) -> OrchError:
    following = [other.name for other in playbook.steps]
    after = following[following.index(step.name) + 1 :] if step.name in following else []
    ways = [f"orch play {playbook.path} --from '{step.name}'     does it again"]
    if after:
        ways.append(f"orch play {playbook.path} --from '{after[0]}'     goes on behind it")
    return OutcomeUnknownError(
        f"play {earlier.play_id} was cut off in step `{step.name}`, and `{step.operation}` is not safe to repeat; "
        "nothing was done",
        evidence=_run_of(earlier) or f"it began at {utc_text(earlier.last_at_s)}",
        way_out="\n".join(["orch status     to see what was done", *ways]),
    )


def _told_of_last(earlier: Progress, afresh: bool) -> tuple[str, ...]:
    if not earlier.play_id or earlier.over == DONE:
        return ()
    if earlier.over is None:
        return (
            f"play {earlier.play_id} was cut off at `{earlier.open_step or _last(earlier)}`; this is another one",
        ) * afresh
    failure = earlier.failure
    return (f"the last play, {earlier.play_id}, failed" + (f" in `{failure.step}`: {failure.what}" if failure else ""),)


def _last(earlier: Progress) -> str:
    return list(earlier.ended)[-1] if earlier.ended else "its beginning"


def _run_of(earlier: Progress) -> str:
    run_id = earlier.values.get("run_id")
    return f"it launched run {run_id}" if run_id else ""
