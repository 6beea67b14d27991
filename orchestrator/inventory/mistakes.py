"""A mistake in a file that a person writes: where it is, what was read, what to write instead.

Rule: pure; every mistake becomes an InventoryError through `error_for`, with the line that it is on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import InventoryError

MAX_SHOWN = 10
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, order=True)
class Position:
    """Both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    position: Position | None
    path: str
    """Keys that lead there: `hosts.gpu-box.port`; empty for the file as a whole."""
    said: str
    write: str = ""

    def sentence(self, file: str) -> str:
        where = f"{file}:{self.position.line}:{self.position.column}" if self.position else file
        return f"{where}: {self.path}: {self.said}" if self.path else f"{where}: {self.said}"


class MistakeError(Exception):
    """Stops the reading of a file at once."""

    def __init__(self, position: Position | None, path: str, said: str, write: str = "") -> None:
        super().__init__(said)
        self.mistake = Mistake(position, path, said, write)


def error_for(file: str, text: str, mistakes: Sequence[Mistake]) -> InventoryError:
    """One mistake: with its line of the file. Several: one sentence each, in the order of the file."""
    ordered = sorted(
        set(mistakes), key=lambda mistake: (mistake.position or Position(0, 0), mistake.path, mistake.said)
    )
    if len(ordered) == 1:
        only = ordered[0]
        return InventoryError(only.sentence(file), evidence=_line(text, only.position), way_out=only.write)
    rows: list[str] = []
    for mistake in ordered[:MAX_SHOWN]:
        rows.append(mistake.sentence(file.rpartition("/")[2]))
        if mistake.write:
            rows.append(f"  {mistake.write}")
    if len(ordered) > MAX_SHOWN:
        rows.append(f"and {len(ordered) - MAX_SHOWN} more")
    return InventoryError(
        f"{file} has {len(ordered)} mistakes; nothing was done", evidence="\n".join(rows), way_out=f"correct {file}"
    )


def _line(text: str, position: Position | None) -> str:
    lines = text.split("\n")
    if position is None or position.line > len(lines):
        return ""
    return f"{position.line} | {printable(lines[position.line - 1].rstrip())}"


def printable(text: str) -> str:
    """One short line without control characters, tabs made visible."""
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 3] + "..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean `x`?``, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""
