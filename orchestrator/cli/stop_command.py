"""orch stop: ask for a checkpoint, wait, end."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.stop import stop
from orchestrator.reports.stop import StopReport, render_stop


def run(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    output.still_running = "The run may have been asked to stop, and then ends: `orch status` tells."

    async def work(target: Target) -> StopReport:
        def on_event(event: Mapping[str, Any]) -> None:
            if event.get("phase") == "asked":
                output.note(f"{target.name}: asked pid {event['pid']} for a checkpoint and an end")
            elif event.get("phase") == "killing":
                output.note(f"{target.name}: the time is over; killing")

        return await stop(
            target, timeout_s=arguments.timeout, kill=arguments.kill, on_event=on_event, trace=output.trace
        )

    reports = []

    def show(report: StopReport) -> int:
        reports.append(report)
        output.result(render_stop(report))
        return 0

    code = for_each(targets, work, show, output)
    if code == 0:
        saved = any(report.was == "running" and report.newest_checkpoint for report in reports)
        output.next_step("orch launch --resume" if saved else "orch launch")
    return code
