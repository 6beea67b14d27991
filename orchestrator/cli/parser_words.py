"""The words that several commands share: selectors, targets, numbers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled out: importing typing takes as long as all the parsers
    from typing import Any


class Parser(argparse.ArgumentParser):
    def _get_formatter(self) -> argparse.HelpFormatter:
        # The width is found out here because argparse would import shutil for it, and compressors with that.
        try:
            width = os.get_terminal_size().columns - 2
        except OSError:
            width = 98
        return argparse.RawDescriptionHelpFormatter(prog=self.prog, width=width)


class Command(Parser):
    """One whose options are added once it is named: all commands' together take longer than parsing the words."""

    _add: Callable[[Parser], None] | None = None

    def add_when_named(self, add: Callable[[Parser], None]) -> None:
        self._add = add

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        add, self._add = self._add, None
        if add is not None:
            add(self)
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            # Told here, with this command's own options: argparse would show those of orch alone.
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def seconds(text: str) -> float:
    """Raises ValueError, which argparse turns into a usage error."""
    value = float(text)
    if not 0 <= value < float("inf"):  # NaN is refused too
        raise ValueError(text)
    return value


def gigabytes(text: str) -> float:
    """argparse names this function where the value is wrong. Raises ValueError."""
    return seconds(text)


def count(text: str) -> int:
    """Raises ValueError."""
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def as_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it for a program to read")


def seeding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", metavar="NAME|last-good", help="make the compile cache from this snapshot first, if it fits"
    )
    parser.add_argument(
        "--replace", action="store_true", help="with --seed: keep the cache that is there as a snapshot"
    )
    parser.add_argument("--force", action="store_true", help="with --seed: also where no look-up can hit")


def selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="target, group, container id, or `all`; not needed when there is only one",
    )


def target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t", "--target", metavar="TARGET", help="target name or container id; not needed when there is only one"
    )


def verbs_of(command: Parser, dest: str, common: Parser) -> Callable[[str, str], Parser]:
    """What adds one verb of a command that has several: its name, and what it does."""
    verbs = command.add_subparsers(dest=dest, required=True, metavar="VERB")

    def verb(name: str, summary: str) -> Parser:
        return verbs.add_parser(name, help=summary, description=summary, parents=[common])

    return verb
