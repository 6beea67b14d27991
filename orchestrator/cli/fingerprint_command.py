"""orch fingerprint: what a run would start from now."""

from __future__ import annotations

import argparse

from orchestrator.cli.fan_out import for_each
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_targets
from orchestrator.operations.identity import Identity, identity_now
from orchestrator.reports.identity import identity_text, render_identity


def run(arguments: argparse.Namespace, output: Output) -> int:
    targets = select_targets(load_inventory(arguments.inventory), arguments.targets)

    async def work(target: Target) -> Identity:
        return await identity_now(target, trace=output.trace)

    def show(found: Identity) -> int:
        output.result(identity_text(found.record) if arguments.json else render_identity(found.record, found.label))
        return 0

    return for_each(targets, work, show, output)
