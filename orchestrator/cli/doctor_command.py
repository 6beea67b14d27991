"""orch doctor: why a run is slow or dead, or what is wrong with its target; the cause first."""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.output import Output
from orchestrator.errors import EXIT_UNWELL
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.doctor import doctor
from orchestrator.reports.doctor import doctor_record, render_doctor


def run(arguments: argparse.Namespace, output: Output) -> int:
    inventory = load_inventory(arguments.inventory)
    target = select_one_target(inventory, arguments.target)
    report = asyncio.run(doctor(target, arguments.run, named=len(inventory.targets) > 1, trace=output.trace))
    output.result(json.dumps(doctor_record(report)) if arguments.json else render_doctor(report))
    return 0 if report.is_well else EXIT_UNWELL
