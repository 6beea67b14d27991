"""orch warmup: compile what a run will ask for, and prove that a fresh process finds it."""

from __future__ import annotations

import argparse
import json

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.cli.waiting import WaitDisplay
from orchestrator.cli.warming import seeding_of, warmed
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.ledger.runspec import parse_settings
from orchestrator.operations.launch import LaunchRequest
from orchestrator.operations.warmup import require_warm
from orchestrator.reports.warmup import WarmupReport, render_warmup, warmup_record


def run(arguments: argparse.Namespace, output: Output) -> int:
    request = LaunchRequest(
        settings=parse_settings(arguments.settings), timeout_s=arguments.timeout, seed=seeding_of(arguments, "warmup")
    )
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)
    display = WaitDisplay(output, labelled=len(targets) > 1)

    async def work(target: Target) -> WarmupReport:
        return await warmed(target, request, output, display)

    holds: list[bool] = []

    def show(report: WarmupReport) -> int:
        holds.append(report.graphs > 0)
        output.result(json.dumps(warmup_record(report)) if arguments.json else render_warmup(report))
        require_warm(report)
        return 0

    code = for_each(targets, work, show, output)
    if code == 0:
        output.next_step("orch cache save NAME     and: orch launch" if all(holds) else "orch launch")
    return code
