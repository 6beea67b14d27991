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
from orchestrator.cli.watch_display import open_display
from orchestrator.errors import EXIT_INTERRUPTED
from orchestrator.inventory.model import Target
from orchestrator.operations.watch import watch
from orchestrator.reports.status import StatusReport, status_record


def watch_as_json(target: Target, output: Output) -> int:
    """One object a line."""
    return follow(target, output, lambda report: output.result(json.dumps(status_record(report))))


def watch_here(target: Target, output: Output) -> int:
    """On a screen at a terminal, as lines elsewhere."""
    with open_display() as display:
        code = follow(target, output, display.show)
    if code == EXIT_INTERRUPTED:
        output.note("orch: no longer watching; nothing on the target was touched; what runs there goes on")
    return code


def follow(target: Target, output: Output, show: Callable[[StatusReport], None]) -> int:
    """The exit code. Raises what connecting raises, and what `show` raises."""

    async def work() -> int:
        task = asyncio.current_task()
        assert task is not None
        ended_by: list[int] = []

        def end(number: int) -> None:
            ended_by.append(number)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            async with aclosing(watch(target, trace=output.trace)) as reports:
                async for report in reports:
                    show(report)
        except asyncio.CancelledError:
            if not ended_by:
                raise
        return 128 + ended_by[0]

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
