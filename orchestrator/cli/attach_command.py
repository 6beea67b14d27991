"""orch attach: the run's tmux session on this terminal."""

from __future__ import annotations

import argparse

from orchestrator.agent.attach import attach_command
from orchestrator.cli.interactive import replace_by
from orchestrator.cli.output import Output
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target


def run(arguments: argparse.Namespace, output: Output) -> int:
    return attach(select_one_target(load_inventory(arguments.inventory), arguments.target), output)


def attach(target: Target, output: Output) -> int:
    return replace_by(target, attach_command(target, require_session(target)), output)


def require_session(target: Target) -> str:
    """Its name. Raises UsageError."""
    if target.payload is None or target.payload.session is None:
        raise UsageError(
            f"{target.name} has no session to attach to",
            evidence="its payload names no `session:`",
            way_out="orch logs -f",
        )
    return target.payload.session
