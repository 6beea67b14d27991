"""orch runs: which runs there were; `show ID`: all of one; `mark ID good|bad`, `note ID TEXT`: what somebody says."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output, terminal_width
from orchestrator.errors import OrchError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target, select_targets
from orchestrator.ledger.run_query import RunQuery, parse_since
from orchestrator.operations.runs_list import list_runs

if TYPE_CHECKING:  # a list connects first, and reads what takes long meanwhile
    from orchestrator.reports.runs import RunsReport


def run(arguments: argparse.Namespace, output: Output) -> int:
    words: list[str] = arguments.words
    if words[:1] == ["show"]:
        if len(words) != 2:
            raise UsageError("`orch runs show` takes one run", way_out="orch runs show last")
        return _show(arguments, words[1], output)
    if words[:1] == ["mark"]:
        if len(words) != 3 or words[2] not in ("good", "bad"):
            raise UsageError("`orch runs mark` takes one run, and good or bad", way_out="orch runs mark last good")
        return _mark(arguments, words[1], words[2], output)
    if words[:1] == ["note"]:
        if len(words) < 3:
            raise UsageError(
                "`orch runs note` takes one run, and what there is to say", way_out="orch runs note last TEXT"
            )
        return _note(arguments, words[1], " ".join(words[2:]), output)
    if arguments.note is not None:
        raise UsageError("--note goes with `orch runs mark`", way_out="orch runs mark last good --note TEXT")
    return _list(arguments, [*words, arguments.target] if arguments.target is not None else words, output)


def _list(arguments: argparse.Namespace, words: list[str], output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), words)
    query = RunQuery(
        last=arguments.last,
        payload=arguments.payload,
        outcomes=tuple(arguments.outcome),
        since_s=None if arguments.since is None else parse_since(arguments.since, time.time()),
        good=arguments.good,
        sort=arguments.sort,
    )
    seen: list[RunsReport] = []

    async def work(target: Target) -> tuple[RunsReport, OrchError | None]:
        return await list_runs(target, query, sync=arguments.sync, gone=arguments.gone, trace=output.trace)

    def show(answer: tuple[RunsReport, OrchError | None]) -> int:
        from orchestrator.reports.runs import render_runs, runs_record

        report, error = answer
        seen.append(report)
        for note in report.notes:
            output.note(f"note: {note}")
        output.result(json.dumps(runs_record(report)) if arguments.json else render_runs(report, terminal_width()))
        if error is None:
            return 0
        output.error(error)
        return error.exit_code

    code = for_each(targets, work, show, output)
    if seen and not arguments.json:
        output.next_step(_after(seen))
    return code


def _after(seen: list[RunsReport]) -> str:
    """Where only the options left nothing to show, there are runs."""
    if any(report.runs for report in seen):
        return "orch runs show last"
    return "orch runs" if any(report.total or report.gone for report in seen) else "orch launch"


def _note(arguments: argparse.Namespace, wanted: str, text: str, output: Output) -> int:
    from orchestrator.operations.runs import note_run

    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    run_id, note = asyncio.run(note_run(target, wanted, text, trace=output.trace))
    if arguments.json:
        output.result(json.dumps({"schema": "orch.note/1", "target": target.name, "run_id": run_id, **asdict(note)}))
        return 0
    output.result(f"noted of run {run_id} on {target.label}")
    output.next_step(f"orch runs show {run_id}")
    return 0


def _mark(arguments: argparse.Namespace, wanted: str, verdict: str, output: Output) -> int:
    from orchestrator.operations.runs import mark_run

    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    run_id, mark = asyncio.run(mark_run(target, wanted, verdict, arguments.note, trace=output.trace))
    if arguments.json:
        output.result(json.dumps({"schema": "orch.mark/1", "target": target.name, "run_id": run_id, **asdict(mark)}))
        return 0
    output.result(f"run {run_id} on {target.label} is marked {mark.verdict}")
    output.next_step("orch diff now")
    return 0


def _show(arguments: argparse.Namespace, wanted: str, output: Output) -> int:
    from orchestrator.operations.runs import show_run
    from orchestrator.reports.run_detail import render_run, run_record

    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    detail = asyncio.run(show_run(target, wanted, trace=output.trace))
    output.result(json.dumps(run_record(detail)) if arguments.json else render_run(detail))
    if not arguments.json:
        output.next_step(f"orch logs {detail.run.run_id}")
    return 0
