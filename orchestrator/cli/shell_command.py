"""orch shell: a shell on the target, on this terminal."""

from __future__ import annotations

import argparse

from orchestrator.cli.interactive import replace_by
from orchestrator.cli.output import Output
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target


def run(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    # A login shell where there is one, so that the person finds their usual PATH.
    script = "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"
    return replace_by(target, ["sh", "-c", script], output)
