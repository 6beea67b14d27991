"""Which row comes when, over the whole run: the data cursor.

Rule: a function of the seed and of how many rows there were when. Every row is met once a round. When data grows, what
the running round had not met yet and the new rows come first; then rounds over all of it. Where documents are packed
(packing.py) a row here is a pack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import List, Tuple

import torch

ROUNDS_A_CHAPTER = 1_000_000


@dataclass(frozen=True)
class Chapter:
    """A stretch of the run over which the data was the same."""

    begins: int
    """Rows met before it, over the whole run."""
    rows: int


Chapters = Tuple[Chapter, ...]


def rows_of_batch(number: int, batch: int, chapters: Chapters, seed: int) -> List[int]:
    """Rows of a batch (from 1)."""
    return [_row(met, chapters, seed) for met in range((number - 1) * batch, number * batch)]


def grow(chapters: Chapters, *, met: int, rows: int) -> Chapters:
    """The order from here on, `met` rows into the run, with `rows` rows. Raises ValueError when there are fewer."""
    if not chapters:
        return (Chapter(0, rows),)
    if rows < chapters[-1].rows:
        raise ValueError(f"{rows} rows now, {chapters[-1].rows} then: data may grow, not shrink")
    return chapters if rows == chapters[-1].rows else (*chapters, Chapter(met, rows))


def _row(met: int, chapters: Chapters, seed: int) -> int:
    number = max(i for i, chapter in enumerate(chapters) if chapter.begins <= met)
    first, inside = _first_round(chapters, number, seed), met - chapters[number].begins
    if inside < len(first):
        return first[inside]
    rounds, place = divmod(inside - len(first), chapters[number].rows)
    return _round(seed, number, rounds + 1, chapters[number].rows)[place]


@lru_cache(maxsize=2)
def _first_round(chapters: Chapters, number: int, seed: int) -> List[int]:
    """What is still unmet when chapter `number` begins, in the order it will be met."""
    if number == 0:
        return _round(seed, 0, 0, chapters[0].rows)
    before, inside = chapters[number - 1], chapters[number].begins - chapters[number - 1].begins
    first = _first_round(chapters, number - 1, seed)
    if inside <= len(first):
        unmet = first[inside:]
    else:
        rounds, place = divmod(inside - len(first), before.rows)
        unmet = _round(seed, number - 1, rounds + 1, before.rows)[place:] if place else []
    waiting = unmet + list(range(before.rows, chapters[number].rows))
    return [waiting[place] for place in _round(seed, number, 0, len(waiting))]


@lru_cache(maxsize=4)
def _round(seed: int, chapter: int, number: int, rows: int) -> List[int]:
    draw = (seed * 1_000_003 + chapter * ROUNDS_A_CHAPTER + number) * 8 + 1
    order: List[int] = torch.randperm(rows, generator=torch.Generator().manual_seed(draw)).tolist()
    return order
