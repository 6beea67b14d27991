"""orch deploy: ship the payload, switch to it."""

from __future__ import annotations

import argparse

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.cli.progress import transfer_progress
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.deploy import deploy
from orchestrator.reports.deploy import DeployReport, render_deploy


def run(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    output.still_running = "The release that was live stays live; `orch deploy` again sends only what is missing."

    async def work(target: Target) -> DeployReport:
        # Several bars at once would write over each other.
        with transfer_progress(target.name, shown=len(targets) == 1) as on_progress:
            return await deploy(
                target,
                revision=arguments.ref,
                dry_run=arguments.dry_run,
                on_progress=on_progress,
                trace=output.trace,
            )

    live = []

    def show(report: DeployReport) -> int:
        live.append(report.live_run is not None)
        output.result(render_deploy(report))
        return 0

    code = for_each(targets, work, show, output)
    if code == 0:
        afterwards = "orch status" if any(live) else "orch launch"
        output.next_step("orch deploy" if arguments.dry_run else afterwards)
    return code
