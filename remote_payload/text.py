"""Templated text the trainer makes itself, and the split by template.

Rule: a template is (family, one choice for each of its three pieces). Held-out templates are combinations of pieces
that no training document has, and one whole family is kept from the drafter as the harder question. The target may know
them all: it stands for the model being served. The drafter learns from `train` templates only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Callable, Dict, List, Sequence, Tuple

SPLITS = ("train", "heldout_template", "heldout_family")
PIECES = 3
CHOICES = 2
UNSEEN_FAMILY = "checklist"

NAMES = ("Ada", "Ben", "Cleo", "Dan")
CITIES = ("Oslo", "Rome", "Lima", "Cairo")
THINGS = ("bottles", "lanterns", "apples")
COLOURS = ("green", "red", "blue")
FIELDS = ("width", "height", "depth", "price", "count", "speed")
CHORES = ("wash the cups", "sweep the hall", "water the plants", "fold the towels", "feed the cat")


@dataclass(frozen=True)
class Template:
    family: str
    pieces: Tuple[int, int, int]

    @property
    def split(self) -> str:
        if self.family == UNSEEN_FAMILY:
            return "heldout_family"
        # Any two of its three pieces are met together in training; never these three.
        first, second, third = self.pieces
        return "heldout_template" if first == second != third else "train"


def _times_table(pieces: Sequence[int], chance: random.Random) -> str:
    a = chance.randint(2, 9)
    bullet = ("", "- ")[pieces[0]]
    product = ("{a} x {i}", "{a} times {i}")[pieces[1]]
    equals = (" = {c}\n", " is {c}\n")[pieces[2]]
    return "".join((bullet + product + equals).format(a=a, i=i, c=a * i) for i in range(1, 16))


def _records(pieces: Sequence[int], chance: random.Random) -> str:
    first = ('{{"id": {i}, ', '{{"row": {i}, ')[pieces[0]]
    second = ('"name": "{name}"', '"city": "{city}"')[pieces[1]]
    ending = ("}},\n", ', "ok": true}},\n')[pieces[2]]
    start, name, city = chance.randint(1, 40), chance.choice(NAMES), chance.choice(CITIES)
    return "".join((first + second + ending).format(i=start + i, name=name, city=city) for i in range(12))


def _song(pieces: Sequence[int], chance: random.Random) -> str:
    colour, thing = chance.choice(COLOURS), chance.choice(THINGS)
    opening = ("{n} ", "Now {n} ")[pieces[0]]
    place = (" hang on the wall", " stand in a row")[pieces[1]]
    ending = (".\n", ", hey ho!\n")[pieces[2]]
    start = chance.randint(20, 40)
    return "".join(f"{opening.format(n=n)}{colour} {thing}{place}{ending}" for n in range(start, start - 12, -1))


def _code(pieces: Sequence[int], chance: random.Random) -> str:
    left = ("self.", "box.")[pieces[0]]
    right = ("read(", "load(")[pieces[1]]
    ending = (")\n", ") or None\n")[pieces[2]]
    first = chance.randrange(len(FIELDS))
    fields = [FIELDS[(first + i) % len(FIELDS)] for i in range(14)]
    return "".join(f"{left}{field} = {right}{field}{ending}" for field in fields)


def _checklist(pieces: Sequence[int], chance: random.Random) -> str:
    mark = ("[ ] ", "* ")[pieces[0]]
    day = ("day {i}: ", "step {i}. ")[pieces[1]]
    ending = (" please\n", " before noon\n")[pieces[2]]
    chore = chance.choice(CHORES)
    return "".join(mark + day.format(i=i) + chore + ending for i in range(1, 13))


FAMILIES: Dict[str, Callable[[Sequence[int], random.Random], str]] = {
    "times_table": _times_table,
    "records": _records,
    "song": _song,
    "code": _code,
    UNSEEN_FAMILY: _checklist,
}


def all_templates() -> List[Template]:
    spread = range(CHOICES)
    return [Template(family, (i, j, k)) for family in FAMILIES for i in spread for j in spread for k in spread]


def templates(split: str) -> List[Template]:
    """Templates of one of SPLITS, in a fixed order."""
    return [template for template in all_templates() if template.split == split]


def write_document(template: Template, chance: random.Random) -> str:
    return FAMILIES[template.family](template.pieces, chance)


def make_documents(chosen: Sequence[Template], count: int, seed: str) -> List[Tuple[Template, str]]:
    """`count` documents, going round the templates so that every one is met; the same for the same seed."""
    chance = random.Random(seed)
    order = list(chosen)
    chance.shuffle(order)
    return [(template, write_document(template, chance)) for template in (order[i % len(order)] for i in range(count))]
