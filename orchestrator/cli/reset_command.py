"""orch reset: show the plan, ask, do it, say what is true then."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.reset import ResetRequest, require_as_wanted, reset
from orchestrator.reports.reset import ResetPlan, ResetReport, render_plan, render_reset, reset_record


def run(arguments: argparse.Namespace, output: Output) -> int:
    request = _request(arguments)
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    output.still_running = "What had been begun may have been done: `orch status` tells."
    asking = asyncio.Lock()

    async def confirm(plan: ResetPlan) -> bool:
        async with asking:  # one question at a time, however many targets
            return await _confirm(plan, arguments, output)

    async def work(target: Target) -> ResetReport:
        def on_event(event: Mapping[str, Any]) -> None:
            _note(target.name, event, output)

        return await reset(target, request, confirm=confirm, on_event=on_event, trace=output.trace)

    done: list[bool] = []

    def show(report: ResetReport) -> int:
        done.append(report.done)
        if arguments.json:
            output.result(json.dumps(reset_record(report)))
        elif not arguments.dry_run:
            output.result(render_reset(report))
        require_as_wanted(report)
        return 0

    code = for_each(targets, work, show, output)
    if code == 0 and (arguments.dry_run or all(done)):
        output.next_step(next_step(arguments))
    return code


def _request(arguments: argparse.Namespace) -> ResetRequest:
    if not arguments.kill_gpus and not arguments.clear_cache:
        raise UsageError(
            "orch reset was not told what to reset",
            evidence="--kill-gpus ends what of this target is on the GPUs or left of its runs\n"
            "--clear-cache sets the compile cache aside as a snapshot",
            way_out="orch reset --kill-gpus --clear-cache --dry-run",
        )
    if arguments.seed is not None and not arguments.clear_cache:
        raise UsageError("--seed goes with --clear-cache", way_out="orch reset --clear-cache --seed last-good")
    if arguments.force and arguments.seed is None:
        raise UsageError("--force goes with --seed", way_out="orch reset --clear-cache --seed last-good --force")
    return ResetRequest(arguments.kill_gpus, arguments.clear_cache, arguments.seed, arguments.force)


async def _confirm(plan: ResetPlan, arguments: argparse.Namespace, output: Output) -> bool:
    """Raises UsageError where nobody can be asked."""
    text = render_plan(plan)
    if arguments.dry_run:
        if not arguments.json:
            output.result(text)
        return False
    output.note(text) if arguments.json else output.result(text)
    if arguments.yes or plan.empty:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"{plan.target}: this has to be answered with yes, and there is no terminal to ask on; nothing was changed",
            way_out="the same command with --yes does it without asking, with --dry-run only shows it",
        )
    answer = await _ask(f"{plan.target}: do this? [yes/no] ")
    return answer.strip().lower() in ("yes", "y")


async def _ask(question: str) -> str:
    """Meanwhile the link is kept alive. In a thread of its own, which must not keep an interrupted orch from ending."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        try:
            line = os.read(sys.stdin.fileno(), 4096).decode(errors="replace")  # not the buffer: its lock outlives us
        except OSError:
            line = ""
        loop.call_soon_threadsafe(_settle, answered, line)

    print(question, end="", file=sys.stderr, flush=True)
    threading.Thread(target=read, name="question", daemon=True).start()
    return await answered


def _settle(answered: asyncio.Future[str], line: str) -> None:
    if not answered.done():
        answered.set_result(line)


def _note(name: str, event: Mapping[str, Any], output: Output) -> None:
    phase = event.get("phase")
    if phase == "asked" and "run_id" in event:
        output.note(f"{name}: asked pid {event['pid']} of run {event['run_id']} to save and end")
    elif phase == "killing" and "run_id" in event:
        output.note(f"{name}: the time is over; killing run {event['run_id']}")
    elif phase in ("asked", "killing"):
        word = "asked" if phase == "asked" else "killing"
        output.note(f"{name}: {word} pid {', '.join(map(str, event['pids']))} on the host")


def next_step(arguments: argparse.Namespace) -> str:
    if not arguments.dry_run:
        return "orch launch"
    parts = [word for word, wanted in (("--kill-gpus", arguments.kill_gpus), ("--clear-cache", arguments.clear_cache))
             if wanted]  # fmt: skip
    if arguments.seed is not None:
        parts += ["--seed", arguments.seed, *(["--force"] if arguments.force else [])]
    return " ".join(["orch reset", *arguments.targets, *parts])
