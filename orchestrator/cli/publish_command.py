"""orch publish: a run's drafter becomes the current one somewhere; what is there; back to the one before."""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.output import Output
from orchestrator.cli.progress import transfer_progress
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.publish import publish, published, switch_published
from orchestrator.operations.where import parse_where
from orchestrator.reports.publish import (
    publish_record,
    render_published,
    render_shelved,
    render_switched,
    shelved_record,
)


def run(arguments: argparse.Namespace, output: Output) -> int:
    inventory = load_inventory(arguments.inventory)
    where = parse_where(arguments.to, inventory, profile=arguments.profile)
    if arguments.listing:
        if arguments.run is not None:
            raise UsageError("--list takes no run", way_out=f"orch publish --to {arguments.to} --list")
        there = asyncio.run(published(where, trace=output.trace))
        output.result(json.dumps(shelved_record(there)) if arguments.json else render_shelved(there))
        return 0
    if arguments.rollback:
        switched = asyncio.run(switch_published(where, arguments.run, trace=output.trace))
        output.result(json.dumps(publish_record(switched)) if arguments.json else render_switched(switched))
        return 0
    target = select_one_target(inventory, arguments.target)
    output.still_running = "The published one is as it was; `orch publish` again goes on from what has arrived."
    with transfer_progress(target.name) as on_progress:
        report = asyncio.run(
            publish(target, arguments.run, where, keep=arguments.keep, on_progress=on_progress, trace=output.trace)
        )
    if arguments.json:
        output.result(json.dumps(publish_record(report)))
        return 0
    output.result(render_published(report))
    output.next_step(f"orch publish --to {arguments.to} --list")
    return 0
