"""orch pull: a run's records, log and checkpoints."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from orchestrator.cli.output import Output
from orchestrator.cli.progress import transfer_progress
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.pull import pull
from orchestrator.reports.pull import render_pull


def run(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = "What was fetched so far is kept; `orch pull` again fetches the rest."
    with transfer_progress(target.name) as on_progress:
        report = asyncio.run(
            pull(
                target,
                arguments.run,
                Path(arguments.to) if arguments.to else None,
                on_progress=on_progress,
                trace=output.trace,
            )
        )
    output.result(render_pull(report))
    output.next_step("orch status")
    return 0
