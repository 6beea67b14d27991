"""orch hosts: how the inventory was read. Connects to nothing."""

from __future__ import annotations

import argparse
import json

from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_targets
from orchestrator.reports.hosts import hosts_record, render_hosts


def run(arguments: argparse.Namespace, output: Output) -> int:
    inventory = load_inventory(arguments.inventory)
    targets = select_targets(inventory, arguments.targets or ["all"])
    if arguments.json:
        output.result(json.dumps(hosts_record(inventory, targets), indent=1))
        return 0
    output.result(render_hosts(inventory, targets))
    output.next_step("orch status")
    return 0
