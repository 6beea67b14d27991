"""The exit codes are the same in errors.py, in `orch --help` and on their page."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator import errors
from orchestrator.cli.parsers import EXIT_CODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exit-codes.md"


def of_errors() -> dict[int, str]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OrchError)]
    codes = [kind.exit_code for kind in kinds]
    assert len(codes) == len(set(codes)), "two errors share a code"
    return {kind.exit_code: f"`{kind.__name__}`" for kind in kinds}


def test_the_page_lists_every_code_with_its_error() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (\S*) ?\|", PAGE.read_text(), re.MULTILINE))
    own = {0: "", errors.EXIT_BUG: "", errors.EXIT_INTERRUPTED: ""}
    assert {int(code): name for code, name in rows.items()} == {**own, **of_errors()}
    assert list(map(int, rows)) == sorted(map(int, rows))


def test_help_lists_them_too() -> None:
    told = {int(code) for code in re.findall(r"(?:^|[,:;] |\n)(\d+) ", EXIT_CODES)}
    assert told == {0, errors.EXIT_BUG, errors.EXIT_INTERRUPTED} | set(of_errors())


def test_they_can_be_read_on_a_terminal_of_80_columns() -> None:
    assert max(map(len, EXIT_CODES.splitlines())) <= 80
