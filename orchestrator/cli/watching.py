"""orch status --watch: reports until somebody has seen enough.

Rule: it ends without a word and leaves nothing behind, whether by Ctrl-C, SIGTERM or a reader that left.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import aclosing

from orchestrator.cli.output import Output
from orchestrator.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from orchestrator.inventory.model import Target
from orchestrator.operations.watch import watch
from orchestrator.reports.status import StatusReport, status_record


def watch_as_json(target: Target, output: Output) -> int:
    """One object a line."""
    return follow(target, output, lambda report: output.result(json.dumps(status_record(report))))


def follow(target: Target, output: Output, show: Callable[[StatusReport], None]) -> int:
    """The exit code. Raises what connecting raises, and what `show` raises."""

    async def work() -> int:
        task = asyncio.current_task()
        assert task is not None
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            async with aclosing(watch(target, trace=output.trace)) as reports:
                async for report in reports:
                    show(report)
        except asyncio.CancelledError:
            if not terminated:
                raise
        return EXIT_TERMINATED

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
