"""Training rows on disk: token ids, and for each whether it is learned. Read row by row, never all at once.

Rule: a part, once written, is never changed. Data that grows adds parts, so a row keeps its number for ever.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence, Tuple

import torch
from anchors import PADDING
from torch import Tensor

TOKENS = "tokens.int32"
LEARNED = "learned.uint8"
ENDS = "ends.int64"


@dataclass(frozen=True)
class Part:
    tokens: Tensor
    """[total] int32: all rows, one after the other."""
    learned: Tensor
    """[total] uint8: 1 where the token is one the drafter learns to predict (a response's), 0 elsewhere."""
    ends: Tensor
    """[rows] int64: where each row ends in the two above."""


class Rows:
    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = list(parts)
        self.lengths = torch.cat([part.ends.diff(prepend=torch.zeros(1, dtype=torch.int64)) for part in parts])
        """[rows], in tokens."""
        self.part_starts = [0]
        """The first row of each part, and behind them how many rows there are."""
        for part in parts:
            self.part_starts.append(self.part_starts[-1] + len(part.ends))

    def __len__(self) -> int:
        return len(self.lengths)

    def read(self, row: int) -> Tuple[Tensor, Tensor]:
        """Token ids [T] int64 and learned [T] bool."""
        number = next(i for i, first in enumerate(self.part_starts[1:]) if row < first)
        part, inside = self._parts[number], row - self.part_starts[number]
        end = int(part.ends[inside])
        here = slice(end - int(self.lengths[row]), end)
        return part.tokens[here].long(), part.learned[here].bool()

    def batch(self, packs: Sequence[Sequence[int]], *, width: int, fill: int) -> Tuple[Tensor, Tensor, Tensor]:
        """One row of the batch from each pack, its documents one after the other, cut at `width`.

        Tokens [B, width], learned [B, width], document [B, width]: 0, 1, ... in each row, then PADDING.
        """
        tokens = torch.full((len(packs), width), fill)
        learned = torch.zeros(len(packs), width, dtype=torch.bool)
        document = torch.full((len(packs), width), PADDING)
        for place, pack in enumerate(packs):
            begin = 0
            for number, row in enumerate(pack):
                ids, marks = (part[: width - begin] for part in self.read(row))
                here = slice(begin, begin + len(ids))
                tokens[place, here], learned[place, here], document[place, here] = ids, marks, number
                begin = here.stop
        return tokens, learned, document


class RowWriter:
    """Writes one part; nothing reads it before `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._tokens, self._learned, self._ends = ((folder / name).open("wb") for name in (TOKENS, LEARNED, ENDS))
        self._end = 0
        self.rows = 0

    def add(self, tokens: Sequence[int], learned: Sequence[bool]) -> None:
        self._end += len(tokens)
        self.rows += 1
        array("i", tokens).tofile(self._tokens)
        array("B", learned).tofile(self._learned)
        array("q", [self._end]).tofile(self._ends)

    def close(self) -> None:
        for stream in (self._tokens, self._learned, self._ends):
            stream.close()


def part_folders(parent: Path, kind: str) -> List[Path]:
    """`<kind>-0`, `<kind>-1`, ... in the order they were written: the tenth growth comes behind the second."""
    return sorted(parent.glob(f"{kind}-*"), key=lambda folder: int(folder.name[len(kind) + 1 :]))


def open_rows(folders: Sequence[Path]) -> Rows:
    """The parts in their order; the files are mapped, not read.

    Raises ValueError when there is no row, or when a part is not as it was written.
    """
    parts = [_map_part(folder) for folder in folders if (folder / ENDS).stat().st_size]
    if not parts:
        raise ValueError("there is no training row")
    return Rows(parts)


def _map_part(folder: Path) -> Part:
    def mapped(name: str, kind: torch.dtype, size_bytes: int) -> Tensor:
        path = folder / name
        return torch.from_file(str(path), shared=False, size=path.stat().st_size // size_bytes, dtype=kind)

    part = Part(mapped(TOKENS, torch.int32, 4), mapped(LEARNED, torch.uint8, 1), mapped(ENDS, torch.int64, 8))
    if not len(part.tokens) == len(part.learned) == int(part.ends[-1]):
        raise ValueError(
            f"{folder} is damaged: {len(part.tokens)} tokens, {len(part.learned)} marks and an end at "
            f"{int(part.ends[-1])}; start a run without --resume, which prepares the data anew"
        )
    return part


def rows_of(rows: Sequence[Tuple[Sequence[int], Sequence[bool]]]) -> Rows:
    """In memory, of one part."""
    tokens: List[int] = [token for ids, _ in rows for token in ids]
    learned = [mark for _, marks in rows for mark in marks]
    ends = torch.tensor([len(ids) for ids, _ in rows]).cumsum(0)
    return Rows([Part(torch.tensor(tokens, dtype=torch.int32), torch.tensor(learned, dtype=torch.uint8), ends)])
