"""orch play: a playbook, step by step; or what it would do."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from orchestrator.cli.output import Output
from orchestrator.cli.waiting import WaitDisplay
from orchestrator.errors import OrchError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.playbook.begin import Beginning
from orchestrator.playbook.model import Step
from orchestrator.playbook.plan import plan_record, render_plan
from orchestrator.playbook.play import load_playbook, plan, play
from orchestrator.playbook.progress import SKIPPED, Failure
from orchestrator.playbook.run import Watcher
from orchestrator.playbook.summary import go_on_lines, play_record


def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.schema:
        from orchestrator.playbook.json_schema import schema_text

        output.result(schema_text().rstrip())
        return 0
    if arguments.file is None:
        raise UsageError("no playbook was named", way_out="orch play playbooks/nightly.yaml --dry-run")
    begun: list[str] = []
    try:
        return _play(arguments, output, begun)
    except OrchError as error:
        if arguments.tell is not None and not begun and not arguments.dry_run:
            _tell(arguments, error, output)
        raise


def _tell(arguments: argparse.Namespace, error: OrchError, output: Output) -> None:
    """No step has had its turn, so none has told anybody."""
    from orchestrator.operations.notify import Message, notify

    facts = {"outcome": "refused", "why": error.what, "playbook": Path(arguments.file).stem}
    text = "\n".join([f"{arguments.file} was not played: {error.what}", error.evidence, error.way_out]).rstrip()
    told = asyncio.run(notify(Message(text, facts), webhook=arguments.tell))
    for warning in told.warnings:
        output.note(warning)


def _play(arguments: argparse.Namespace, output: Output, begun: list[str]) -> int:
    """begun: gets the play's id once it has begun."""
    loaded = load_playbook(Path(arguments.file), load_inventory(arguments.inventory), arguments.variables)
    if arguments.dry_run:
        planned = plan(loaded, start=arguments.start, afresh=arguments.new)
        output.result(json.dumps(plan_record(planned)) if arguments.json else render_plan(planned))
        if not arguments.json:
            output.next_step(f"orch play {arguments.file}")
        return 0
    watcher = watcher_of(output, quiet=arguments.json)

    def on_beginning(play_id: str, beginning: Beginning) -> None:
        begun.append(play_id)
        output.still_running = (
            f"The play stops here; a run goes on. `orch play {arguments.file}` goes on where it stopped."
        )
        for line in (f"play {play_id} of {loaded.playbook.path.name}", *beginning.told):
            output.note(line)

    work = play(
        loaded,
        start=arguments.start,
        afresh=arguments.new,
        on_beginning=on_beginning,
        watcher=watcher,
        trace=output.trace,
    )
    progress = asyncio.run(work)
    if arguments.json:
        output.result(json.dumps(play_record(loaded.playbook, progress)))
    else:
        output.result(str(progress.values.get("summary") or ""))
    if progress.failure is not None:
        raise _error(progress.failure, go_on_lines(loaded.playbook, progress, arguments.file))
    return 0


def watcher_of(output: Output, *, quiet: bool) -> Watcher:
    display = WaitDisplay(output, labelled=False)

    def on_begin(step: Step, targets: str) -> None:
        output.note(f"{step.name}: {step.operation} on {targets}" if step.name != step.operation else f"{step.name}:")

    def on_end(step: Step, how: str, said: str) -> None:
        display.finish()
        if how == SKIPPED:  # it never began, so nobody has named it yet
            output.note(f"{step.name}: {said}")
            return
        lines = said.splitlines() or [""]
        if quiet:
            lines = lines[:1]
        output.note(f"  {how}: {lines[0]}")
        for line in lines[1:]:
            output.note(f"    {line}")

    def say(step: Step, text: str) -> None:
        display.finish()
        output.note(f"  {text}")

    return Watcher(on_begin, on_end, say, display.for_target("play"))


def _error(failure: Failure, go_on: list[str]) -> OrchError:
    error = OrchError(
        f"step `{failure.step}` failed: {failure.what}",
        evidence=failure.evidence,
        way_out="\n".join([*failure.way_out.splitlines(), *go_on]),
    )
    error.exit_code = failure.exit_code
    return error
