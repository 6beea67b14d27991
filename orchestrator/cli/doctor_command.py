"""orch doctor: why a run is slow or dead, or what is wrong with its target; the cause first."""

from __future__ import annotations

import argparse
import asyncio
import json

from orchestrator.cli.output import Output
from orchestrator.errors import EXIT_UNWELL, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.doctor import doctor
from orchestrator.operations.doctor_setup import setup
from orchestrator.reports.doctor import doctor_record, render_doctor
from orchestrator.reports.setup import render_setup, setup_record


def run(arguments: argparse.Namespace, output: Output) -> int:
    inventory = load_inventory(arguments.inventory)
    target = select_one_target(inventory, arguments.target)
    if arguments.setup:
        return _setup(target, arguments, output)
    report = asyncio.run(doctor(target, arguments.run, named=len(inventory.targets) > 1, trace=output.trace))
    output.result(json.dumps(doctor_record(report)) if arguments.json else render_doctor(report))
    return 0 if report.is_well else EXIT_UNWELL


def _setup(target: Target, arguments: argparse.Namespace, output: Output) -> int:
    if arguments.run is not None:
        raise UsageError("`--setup` looks at the target, not at a run", way_out="orch doctor --setup")
    report = asyncio.run(setup(target, trace=output.trace))
    output.result(json.dumps(setup_record(report)) if arguments.json else render_setup(report))
    return 0 if report.is_fit else EXIT_UNWELL
