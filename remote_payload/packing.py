"""Which documents share a training row, so that a row of 40,000 tokens is not filled up behind one of 800.

Rule: a function of the documents' lengths, part by part. Data that grows makes new packs and changes none, so a pack
keeps its number for ever and the data cursor (order.py) counts packs as it counts rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from typing import Iterable, List, Sequence, Tuple

from rows import Rows

WINDOW = 4096
"""Documents that are looked at together: enough to leave little empty, and neighbours stay near each other."""


class Packs:
    def __init__(self, groups: Iterable[Sequence[int]]) -> None:
        self._members, self._ends = array("q"), array("q", [0])
        for group in groups:
            self._members.extend(group)
            self._ends.append(len(self._members))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> List[int]:
        """The documents of a pack, in the order they stand in it."""
        return list(self._members[self._ends[number] : self._ends[number + 1]])


def pack_rows(rows: Rows, width: int) -> Packs:
    """width: tokens of a packed row; a longer document has one of its own and is cut."""
    lengths = rows.lengths.clamp(max=width).tolist()
    return Packs(
        [first + begin + member for member in group]
        for first, end in zip(rows.part_starts, rows.part_starts[1:], strict=False)
        for begin in range(0, end - first, WINDOW)
        for group in pack(lengths[first + begin : min(first + begin + WINDOW, end)], width)
    )


def pack(lengths: Sequence[int], width: int) -> List[List[int]]:
    """Best fit, the longest first. No length is above `width`. Packs come in the order of their first documents."""
    packs: List[List[int]] = []
    room: List[Tuple[int, int]] = []
    """Tokens left and the pack's number, ascending."""
    for document in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        place = bisect_left(room, (lengths[document], -1))
        if place == len(room):
            packs.append([])
            left, number = width, len(packs) - 1
        else:
            left, number = room.pop(place)
        packs[number].append(document)
        insort(room, (left - lengths[document], number))
    return sorted(sorted(members) for members in packs)
