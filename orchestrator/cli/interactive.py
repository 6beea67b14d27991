"""Hand this terminal over to a command on the target."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from orchestrator.cli.output import Output
from orchestrator.container.target import open_target
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target


def replace_by(target: Target, argv: Sequence[str], output: Output) -> int:
    """Become the local command that runs argv over there. Raises UsageError without a terminal."""
    require_terminal()
    local = asyncio.run(_local_argv(target, argv))
    if output.trace:
        output.trace("here", local)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(local[0], local)


def require_terminal() -> None:
    """Raises UsageError."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "this needs a terminal on stdin and stdout", way_out="for one command without a terminal: orch exec -- ARGV"
        )


async def _local_argv(target: Target, argv: Sequence[str]) -> list[str]:
    transport = await open_target(target)
    try:
        return transport.interactive_argv(argv)
    finally:
        await transport.close()
