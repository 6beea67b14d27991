"""orch diff: what differs between two runs, the likeliest cause first."""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.output import Output
from orchestrator.errors import EXIT_DIFFERS
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.diff import diff


def run(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    report = asyncio.run(diff(target, arguments.sides, trace=output.trace))
    from orchestrator.reports.diff import diff_record, render_diff  # `diff` imports it while it connects

    output.result(json.dumps(diff_record(report)) if arguments.json else render_diff(report))
    return 0 if report.comparison.equal else EXIT_DIFFERS
