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
CHOICES = 3
UNSEEN_FAMILY = "checklist"

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal")
CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Quito", "Paris")
THINGS = ("bottles", "lanterns", "apples", "books", "kites")
COLOURS = ("green", "red", "blue", "white")
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
        return "heldout_template" if sum(self.pieces) % 5 == 4 else "train"


def _times_table(pieces: Sequence[int], chance: random.Random) -> str:
    a = chance.randint(2, 12)
    opening = ("Table of {a}:\n", "Multiples of {a}\n", "Learn the {a} times table.\n")[pieces[0]].format(a=a)
    bullet = ("", "- ", "> ")[pieces[1]]
    line = ("{a} x {i} = {c}\n", "{i} times {a} is {c}\n", "{a} * {i} gives {c}\n")[pieces[2]]
    return opening + "".join(bullet + line.format(a=a, i=i, c=a * i) for i in range(1, 16))


def _records(pieces: Sequence[int], chance: random.Random) -> str:
    opening = ("[\n", '{"people": [\n', '{"rows": [\n')[pieces[0]]
    first = ("id", "number", "row")[pieces[1]]
    indent = (" ", "    ", "\t")[pieces[2]]
    start, name, city = chance.randint(1, 40), chance.choice(NAMES), chance.choice(CITIES)
    rows = (
        f'{indent}{{"{first}": {start + i}, "name": "{name}", "city": "{city}", "active": true}},\n' for i in range(8)
    )
    return opening + "".join(rows)


def _song(pieces: Sequence[int], chance: random.Random) -> str:
    colour, thing = chance.choice(COLOURS), chance.choice(THINGS)
    place = ("hanging on the wall", "standing in a row", "lying on the floor")[pieces[0]]
    event = ("And if one of them should fall", "When the wind begins to blow", "Take one down and pass it on")[
        pieces[1]
    ]
    ending = ("there will be {n} {thing} left.\n", "only {n} {thing} remain.\n", "{n} {thing} are still here.\n")[
        pieces[2]
    ]
    start = chance.randint(9, 30)
    verses = (
        f"{n} {colour} {thing} {place},\n{event}, {ending.format(n=n - 1, thing=thing)}"
        for n in range(start, start - 6, -1)
    )
    return "".join(verses)


def _code(pieces: Sequence[int], chance: random.Random) -> str:
    verb = ("get", "read", "fetch")[pieces[0]]
    owner = ("self", "box", "item")[pieces[1]]
    body = (
        "    return {owner}.{field}\n",
        "    value = {owner}.{field}\n    return value\n",
        '    return {owner}["{field}"]\n',
    )[pieces[2]]
    first = chance.randrange(len(FIELDS))
    fields = [FIELDS[(first + i) % len(FIELDS)] for i in range(8)]
    return "".join(f"def {verb}_{field}({owner}):\n{body.format(owner=owner, field=field)}\n" for field in fields)


def _checklist(pieces: Sequence[int], chance: random.Random) -> str:
    mark = ("[ ] ", "* ", "o ")[pieces[0]]
    day = ("Day {i}: ", "Morning {i}, ", "Step {i}. ")[pieces[1]]
    ending = (" please\n", " for {name}\n", " before noon\n")[pieces[2]]
    name, chore = chance.choice(NAMES), chance.choice(CHORES)
    return "".join(mark + day.format(i=i) + chore + ending.format(name=name) for i in range(1, 13))


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
