"""orch rollback: the release before, or a named one."""

from __future__ import annotations

import argparse

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.deploy import rollback
from orchestrator.reports.deploy import RollbackReport, render_rollback


def run(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> RollbackReport:
        return await rollback(target, release=arguments.to, trace=output.trace)

    live = []

    def show(report: RollbackReport) -> int:
        live.append(report.live_run is not None)
        output.result(render_rollback(report))
        return 0

    code = for_each(targets, work, show, output)
    if code == 0:
        output.next_step("orch status" if any(live) else "orch launch")
    return code
