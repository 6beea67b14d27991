"""orch logs: the log as bytes; at a terminal without its control sequences. Or only its last failure, as text."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import sys
from collections.abc import Callable

from orchestrator.cli.output import Output
from orchestrator.cli.streams import write_to
from orchestrator.errors import EXIT_NOTHING_FOUND
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.inventory.select import select_one_target
from orchestrator.operations.failure import run_failure
from orchestrator.operations.logs import logs
from orchestrator.probes.text import plain_text


def run(arguments: argparse.Namespace, output: Output) -> int:
    target = select_one_target(load_inventory(arguments.inventory), arguments.target)
    output.still_running = "The run is not touched by this."
    if arguments.traceback:
        return _traceback(target, arguments.run, output)
    sink, finish = terminal_sink() if sys.stdout.isatty() else (write_to(sys.stdout.buffer), lambda: None)
    try:
        return asyncio.run(
            logs(
                target,
                arguments.run,
                follow=arguments.follow,
                lines=arguments.lines,
                on_bytes=sink,
                on_note=output.note,
                trace=output.trace,
            )
        )
    finally:
        finish()


def _traceback(target: Target, run_id: str | None, output: Output) -> int:
    """The failure on stdout; what is said about it on stderr, so that a pipe gets the traceback alone."""
    failure = asyncio.run(run_failure(target, run_id, trace=output.trace))
    if failure.last is None:
        output.note(f"no traceback in the log of run {failure.run_id}")
        return EXIT_NOTHING_FOUND
    if failure.first is not None:
        output.note(f"run {failure.run_id}, the first failure:")
        output.result(failure.first.text)
    output.note(f"run {failure.run_id}, the last failure:")
    output.result(failure.last.text)
    return 0


def terminal_sink() -> tuple[Callable[[bytes], None], Callable[[], None]]:
    """What takes the bytes, and what shows the last line when it has no end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""

    def write(chunk: bytes) -> None:
        # Only whole lines are shown: a control sequence cut in two would get past the filter.
        nonlocal held
        lines, newline, held = (held + decoder.decode(chunk)).rpartition("\n")
        if newline:
            print(plain_text(lines), flush=True)

    def finish() -> None:
        rest = plain_text(held + decoder.decode(b"", final=True))
        if rest:
            print(rest, flush=True)

    return write, finish
