"""orch adopt: a record for a training in a tmux session that orch did not start."""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.adopt import adopt
from orchestrator.reports.adopt import adopted_record, render_adopted


def run(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    report = asyncio.run(
        adopt(target, arguments.session, pid=arguments.pid, socket=arguments.socket, trace=output.trace)
    )
    output.result(json.dumps(adopted_record(report)) if arguments.json else render_adopted(report))
    if not arguments.json:
        output.next_step("orch status")
    return 0
