"""orch status --watch: reports until somebody has seen enough.

Rule: it ends without a word and leaves nothing behind, whether by Ctrl-C, SIGTERM or a reader that left.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, nullcontext

from orchestrator.cli.output import Output
from orchestrator.cli.watch_display import Lines, TableScreen, has_colours, has_screen, open_display, terminal_size
from orchestrator.errors import EXIT_INTERRUPTED, OrchError
from orchestrator.inventory.model import Target
from orchestrator.operations.watch import watch, watch_all
from orchestrator.reports.status import StatusReport, status_record
from orchestrator.reports.watch_table import by_name

NOTE = "orch: no longer watching; nothing on the target was touched; what runs there goes on"


def watch_as_json(target: Target, output: Output) -> int:
    """One object a line."""
    return follow(target, output, lambda report: output.result(json.dumps(status_record(report))))


def watch_here(target: Target, output: Output) -> int:
    """On a screen at a terminal, as lines elsewhere."""
    with open_display() as display:
        code = follow(target, output, display.show)
    if code == EXIT_INTERRUPTED:
        output.note(NOTE)
    return code


def watch_many(targets: Sequence[Target], output: Output, *, as_json: bool) -> int:
    """A table at a terminal; elsewhere the lines of each. A target that cannot be reached hides no other."""
    watched = by_name([target.name for target in targets])
    errors: dict[str, OrchError] = {}
    said: dict[str, str] = {}
    lines = {target.name: Lines(sys.stdout) for target in targets}
    table = None
    if not as_json and has_screen():
        table = TableScreen(list(watched.values()), sys.stdout, terminal_size, coloured=has_colours())

    def explain(name: str, error: OrchError) -> None:
        output.note(f"{name}:")
        output.error(error)

    async def work() -> None:
        async with aclosing(watch_all(targets, trace=output.trace)) as told:
            async for target, word in told:
                one = watched[target.name]
                if isinstance(word, OrchError):
                    one.error = word.what
                    errors[target.name] = word
                    if table is None and said.get(target.name) != word.what:
                        said[target.name] = word.what
                        explain(target.name, word)
                else:
                    one.take(word)
                    errors.pop(target.name, None)
                    said.pop(target.name, None)
                    if as_json:
                        output.result(json.dumps(status_record(word)))
                    elif table is None:
                        lines[target.name].show(word)
                if table is not None:
                    table.changed()

    with table or nullcontext():
        code = run_until_ended(work)
    if code == EXIT_INTERRUPTED and not as_json:
        output.note(NOTE)
    if table is not None and code == 0:
        for name, error in errors.items():
            explain(name, error)
    return code or max((error.exit_code for error in errors.values()), default=0)


def follow(target: Target, output: Output, show: Callable[[StatusReport], None]) -> int:
    """The exit code. Raises what connecting raises, and what `show` raises."""

    async def work() -> None:
        async with aclosing(watch(target, trace=output.trace)) as reports:
            async for report in reports:
                show(report)

    return run_until_ended(work)


def run_until_ended(work: Callable[[], Awaitable[None]]) -> int:
    """The exit code: 0 when it ended by itself, else by what it was ended."""

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        ended_by: list[int] = []

        def end(number: int) -> None:
            ended_by.append(number)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            await work()
        except asyncio.CancelledError:
            if not ended_by:
                raise
        return 128 + ended_by[0] if ended_by else 0

    try:
        return asyncio.run(guarded())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
