"""The step between a trained model and its publication: nothing worse than what is published gets through.

Rule: what is not known does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.errors import NotAsWantedError, UsageError
from orchestrator.ledger.publications import Publication, Shelved
from orchestrator.operations.publish import published
from orchestrator.operations.where import parse_where
from orchestrator.playbook import schema
from orchestrator.playbook.doing import At, Done
from orchestrator.playbook.variables import LET_THROUGH
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str
from remote_payload import contract

ROUNDING = 1e-9
"""3.2 - 0.05 is a little more than 3.15."""


async def gate(at: At, options: schema.GateOptions) -> Done:
    """Raises NotAsWantedError: the published one stays. And what asking for the published one raises."""
    if options.to is None:
        raise UsageError("gate: it has no `to:`, and no `publish` step follows it", way_out="to: FOLDER")
    if at.known.get("evaluated_run") is None:
        what = "nothing is published: no run was evaluated in this play, nor in the one it goes on from"
        raise NotAsWantedError(what, way_out="orch play FILE --from evaluate     reads the run's result first")
    there = await published(parse_where(options.to, at.inventory), trace=at.trace)
    current = there.find(there.current)
    tau = as_float(at.known.get("tau"))
    lossless = as_bool(at.known.get("lossless"))
    wrong = judge(options, tau, lossless, there)
    before = current.acceptance_length if current else None
    if wrong:
        raise NotAsWantedError(
            f"run {at.known.get('evaluated_run')} is not published: {wrong[0]}",
            evidence="\n".join([*wrong[1:], f"published in {there.where}: {_named(current, there.current)}"]),
            way_out="orch diff     what differs from the last good run",
        )
    said = f"tau {_number(tau)}, published: {_named(current, there.current)}"
    odd = _judged_otherwise(at.known.get("judged_on"), current)
    one = {"run": at.known.get("evaluated_run"), "instead_of": there.current}
    passed = {**as_mapping(at.known.get(LET_THROUGH)), there.where: one}
    return Done(f"{said}\n{odd}" if odd else said, {"published_tau": before, LET_THROUGH: passed}, warning=odd)


def let_through(known: Mapping[str, object], what: str, where: str) -> str | None:
    """The tree hash that `what` may replace at `where`; None: nothing is published there. Whatever the playbook, its
    `when`s and --from say, nothing else is published by a play. Raises NotAsWantedError."""
    passed = as_mapping(as_mapping(known.get(LET_THROUGH)).get(where))
    run_id, _, step = what.partition(":")
    judged = passed.get("run")
    if judged is not None and run_id == judged and _is_judged(known, run_id, step):
        return as_str(passed.get("instead_of"))
    raise NotAsWantedError(
        f"{what} is not published in {where}: no `gate` has let it through",
        evidence=f"a gate for {where} let run {judged} through"
        if judged
        else f"no gate for {where} let anything through",
        way_out="orch play FILE --from gate     judges it against what is published there",
    )


def _is_judged(known: Mapping[str, object], run_id: str, step: str) -> bool:
    """A run's export is what its result is of; of its checkpoints only the one that `evaluate` read."""
    return not step or str(known.get("checkpoint")).endswith(f"/{run_id}/{contract.CHECKPOINTS}/step-{step}")


def judge(options: schema.GateOptions, tau: float | None, lossless: bool | None, there: Shelved) -> list[str]:
    """Every reason why it does not pass."""
    wrong = []
    if options.lossless and lossless is not True:
        said = "is not known" if lossless is None else "was not: the drafter changes what the target says"
        wrong.append(f"whether its decoding was lossless {said}" if lossless is None else f"its decoding {said}")
    if tau is None:
        return [*wrong, "its tau is not known"]
    if options.tau_at_least is not None and tau < options.tau_at_least:
        wrong.append(f"tau {_number(tau)}, at least {_number(options.tau_at_least)} wanted")
    if there.current is None:
        return wrong
    current = there.find(there.current)
    before = current.acceptance_length if current else None
    if before is None or not math.isfinite(before):
        if options.tau_at_least is None:
            wrong.append("the tau of the published one is not known, and no tau_at_least is demanded")
    elif tau < before - options.tau_drop - ROUNDING:
        drop = f", {_number(options.tau_drop)} less is let through" if options.tau_drop else ""
        wrong.append(f"tau {_number(tau)} is worse than {_number(before)} of the published one{drop}")
    return wrong


def judged_on(result: Mapping[str, object]) -> str | None:
    """What two acceptance lengths must have in common to be compared. None: it does not tell."""
    prompts, block = as_int(result.get("prompts")), as_int(result.get("block_size"))
    if prompts is None and block is None:
        return None
    return f"{'-' if prompts is None else prompts} prompts, block size {'-' if block is None else block}"


def _judged_otherwise(now: object, current: Publication | None) -> str:
    before = judged_on(current.result) if current else None
    if before is None or not isinstance(now, str) or now == before:
        return ""
    return f"the two taus are not of the same kind: {now} now, {before} for the published one"


def _named(current: Publication | None, tree_hash: str | None = None) -> str:
    if current is None:
        return "nothing yet" if tree_hash is None else f"{tree_hash[:12]}, of which there is no readable record"
    return f"run {current.run_id or '-'}, tau {_number(current.acceptance_length)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")
