"""orch env: the environments of a target."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from orchestrator.cli.env_check_command import baseline, check_targets
from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.cli.progress import transfer_progress
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target, select_targets
from orchestrator.operations.environment import SyncRequest, list_environments, remove, sync, use
from orchestrator.reports.environment import (
    EnvironmentsReport,
    SyncReport,
    environments_record,
    render_environments,
    render_removed,
    render_sync,
    render_used,
)


def run(arguments: argparse.Namespace, output: Output) -> int:
    verbs = {
        "sync": _sync,
        "list": _list,
        "use": _use,
        "rollback": _rollback,
        "remove": _remove,
        "check": check_targets,
        "baseline": baseline,
    }
    return verbs[arguments.env_verb](arguments, output)


def _sync(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    output.still_running = "What was current stays current; `orch env sync` again goes on."
    request = SyncRequest(
        purposes=tuple(arguments.purpose),
        wheels=Path(arguments.wheels) if arguments.wheels else None,
        indexes=tuple(arguments.index),
        rebuild=arguments.rebuild,
        switch=not arguments.no_switch,
        dry_run=arguments.dry_run,
    )

    async def work(target: Target) -> SyncReport:
        with transfer_progress(target.name, shown=len(targets) == 1) as on_progress:
            return await sync(
                target,
                request,
                on_progress=on_progress,
                on_phase=lambda text: output.note(f"{target.name}: {text}"),
                trace=output.trace,
            )

    def show(report: SyncReport) -> int:
        output.result(render_sync(report))
        return 0

    code = for_each(targets, work, show, output)
    if code == 0:
        output.next_step("orch env sync" if arguments.dry_run else "orch env list")
    return code


def _list(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> EnvironmentsReport:
        return await list_environments(target, trace=output.trace)

    def show(report: EnvironmentsReport) -> int:
        output.result(json.dumps(environments_record(report)) if arguments.json else render_environments(report))
        return 0

    return for_each(targets, work, show, output)


def _use(arguments: argparse.Namespace, output: Output) -> int:
    return _switch(arguments, arguments.environment, output)


def _rollback(arguments: argparse.Namespace, output: Output) -> int:
    return _switch(arguments, None, output)


def _switch(arguments: argparse.Namespace, wanted: str | None, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    report = asyncio.run(use(target, wanted, purpose=arguments.purpose, trace=output.trace))
    output.result(render_used(report))
    output.next_step("orch status" if report.live_run else "orch launch")
    return 0


def _remove(arguments: argparse.Namespace, output: Output) -> int:
    if bool(arguments.environments) == arguments.unused:
        raise UsageError(
            "orch env remove takes either environments or --unused", way_out="orch env list\norch env remove --unused"
        )
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    names = tuple(arguments.environments)
    output.result(render_removed(asyncio.run(remove(target, names, unused=arguments.unused, trace=output.trace))))
    return 0
