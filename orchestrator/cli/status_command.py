"""orch status: what runs, how it goes, how the last run ended."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.status import status

if TYPE_CHECKING:  # `status` imports it while it waits for the answers
    from orchestrator.reports.status import StatusReport


def run(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    if arguments.watch:
        return _watch(targets, arguments, output)
    seen: list[StatusReport] = []

    async def work(target: Target) -> StatusReport:
        return await status(target, trace=output.trace)

    def show(report: StatusReport) -> int:
        import json

        from orchestrator.reports.status import render_status, status_record

        seen.append(report)
        output.result(json.dumps(status_record(report)) if arguments.json else render_status(report))
        return 0

    code = for_each(targets, work, show, output)
    if seen and not arguments.json:
        output.next_step(_next(seen[0]))
    return code


def _watch(targets: Sequence[Target], arguments: argparse.Namespace, output: Output) -> int:
    from orchestrator.cli.watching import watch_as_json, watch_here, watch_many

    if len(targets) != 1:
        return watch_many(targets, output, as_json=arguments.json)
    return (watch_as_json if arguments.json else watch_here)(targets[0], output)


def _next(report: StatusReport) -> str:
    from orchestrator.probes.training import RunPhase

    if report.release is None:
        return "orch deploy"
    if report.run is None:
        return "orch launch"
    if report.run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        return "orch logs -f   (or: orch stop)"
    if report.run.state.exit and report.run.state.exit.succeeded:
        return "orch pull"
    if report.run.state.stop_asked and report.run.state.phase is RunPhase.ENDED:
        return "orch launch --resume" if report.run.last_checkpoint else "orch launch"
    return "orch logs"
