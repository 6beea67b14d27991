"""The command line: parse, call one command, turn its failure into text and an exit code.

Rule: nothing heavy is imported here; each command imports what it needs when it runs, so `orch --help` stays fast.
"""

from __future__ import annotations

import gc
import os
import sys

from orchestrator import errors
from orchestrator.cli.output import Output, silence
from orchestrator.cli.parsers import build_parser

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled out: importing typing takes longer than all the rest of this file
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """argv None: those of this process, which then ends."""
    code = _main(argv)
    if argv is None:
        # Before it ends, Python looks for garbage in all that was imported: a tenth of a short command's CPU time.
        gc.freeze()
    return code


def _main(argv: Sequence[str] | None) -> int:
    _open_closed_streams()
    _let_through_all_letters()
    output = Output(verbose=False)
    try:
        from importlib import import_module

        arguments = build_parser().parse_args(argv)
        arguments.inventory = _path(getattr(arguments, "inventory", None))
        arguments.verbose = output.verbose = getattr(arguments, "verbose", False)
        module = import_module(f"orchestrator.cli.{arguments.command}_command")
        code = module.run(arguments, output)
        sys.stdout.flush()
        return int(code)
    except errors.OrchError as error:
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.interrupted()
        return errors.EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout left (`orch logs | head`): not a failure; keep the interpreter from complaining.
        silence(sys.stdout)
        return 0
    except Exception:
        output.bug()
        return errors.EXIT_BUG


def _open_closed_streams() -> None:
    """Who starts us may have closed one (`orch deploy 2>&-`): what it was to get goes nowhere, the work is done."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            os.set_inheritable(number, True)  # as the standard streams are; dup2 sees to it for another number only
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _let_through_all_letters() -> None:
    """A terminal or locale that is not UTF-8 (ISO-8859-1) gets a question mark for what it cannot show."""
    from io import TextIOWrapper

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")


def _path(text: str | None) -> object:
    if text is None:
        return None
    from pathlib import Path

    return Path(text)
