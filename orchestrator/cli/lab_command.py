"""orch lab, as the command table wants it."""

from __future__ import annotations

import argparse

from orchestrator.cli.lab import run as run_lab
from orchestrator.cli.output import Output


def run(arguments: argparse.Namespace, output: Output) -> int:
    return run_lab(arguments)
