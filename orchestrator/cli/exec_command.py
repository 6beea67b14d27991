"""orch exec: one command on the target, its exit code passed on."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator

from orchestrator.cli.output import Output
from orchestrator.cli.streams import stdin_chunks, write_to
from orchestrator.errors import UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.execute import execute


def run(arguments: argparse.Namespace, output: Output) -> int:
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise UsageError("orch exec needs a command", way_out="orch exec -- nvidia-smi")
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = f"The command on {target.name} may go on: look with `orch exec -- ps aux`."
    # At a terminal there is nothing to send, and reading it would swallow what the person types next.
    stdin: AsyncIterator[bytes] | None = None if sys.stdin is None or sys.stdin.isatty() else stdin_chunks()
    return asyncio.run(
        execute(
            target,
            argv,
            stdin=stdin,
            on_stdout=write_to(sys.stdout.buffer),
            on_stderr=write_to(sys.stderr.buffer),
            timeout_s=arguments.timeout,
            trace=output.trace,
        )
    )
