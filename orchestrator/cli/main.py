"""The command line: parse, call one command, turn its failure into text and an exit code.

Rule: nothing heavy is imported here; each command imports what it needs when it runs, so `orch --help` stays fast.
"""

from __future__ import annotations

import argparse
import os
import sys

from orchestrator import __version__, errors
from orchestrator.cli.output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled out: importing typing takes longer than all the rest of this file
    from collections.abc import Sequence

EXIT_CODES = """\
exit codes: 0 done, 2 usage, 3 inventory, 4 host unreachable, 5 host key, 6 login refused, 7 container, 8 outcome
unknown (link lost), 9 busy (live run, lease), 10 preflight, 11 the run failed, 12 deadline passed, 13 transfer,
70 bug, 130 interrupted. `orch exec` hands on the command's own code."""

# Command name -> module with add_parser(subparsers, common) and run(arguments, output) -> exit code.
COMMANDS = {
    "hosts": "hosts",
    "trust": "trust",
    "deploy": "deploy",
    "rollback": "rollback",
    "launch": "launch",
    "status": "status",
    "logs": "logs",
    "attach": "attach",
    "stop": "stop",
    "pull": "pull",
    "exec": "exec",
    "shell": "shell",
    "lab": "lab",
}


def build_parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-i", "--inventory", metavar="FILE", default=argparse.SUPPRESS, help="inventory file")
    common.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show every remote command line"
    )
    parser = argparse.ArgumentParser(
        prog="orch",
        description="Runs training on GPU containers that can be reached only through their host.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"orch {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    from orchestrator.cli import parsers

    parsers.add_all(subparsers, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    arguments.inventory = _path(getattr(arguments, "inventory", None))
    arguments.verbose = getattr(arguments, "verbose", False)
    output = Output(verbose=arguments.verbose)
    from importlib import import_module

    module = import_module(f"orchestrator.cli.{COMMANDS[arguments.command]}_command")
    try:
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        output.bug()
        return errors.EXIT_BUG


def _path(text: str | None) -> object:
    if text is None:
        return None
    from pathlib import Path

    return Path(text)
