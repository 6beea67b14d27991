"""Fuzzing of what reads other programs' output: mutated captures in, a reading out, whatever they are.

What must hold of every input: no exception, no hang, every value at a place in the input whose text says that value;
and over many inputs: time in proportion to size, no memory that stays.
"""

from __future__ import annotations

import gc
import math
import random
import re
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import unquote

from orchestrator.probes.text import plain_text
from tests.reading import leaves, unplaced

CPU_LIMIT_S = 20.0
"""Of one input, in the process's own time, so that a busy machine makes no failure."""
MEGABYTE = 1 << 20
LINEAR = 8.0
"""Four times the input may take this many times as long: 4 when linear, 16 when quadratic."""
PAUSE_S = 0.25
"""So much longer is nothing: a busy machine."""
KEPT_BYTES = 256 * 1024
STRANGE = [
    *("\0", "\r", "\n", "\r\n", "\t", " ", "\x1b[31m", "\x1b]0;t\x07", "\udcff", "\ufeff", "\u202e", "é", "𝔘"),
    *("\\r\\n", '"', "'", ",", ":", "=", "%", "-", "-1", "0", "1e999", "9" * 40, "NaN", "N/A", "[N/A]"),
    *("<", ">", "&", "&lt;", "]]>", "{", "}"),
]
ABSURD = 1e15
"""What was inserted between the parts of a sum is none of them."""
JUDGED = frozenset({"kind"})
"""Fields that say what the words mean, in words of ours."""


@dataclass(frozen=True)
class Target:
    """One reader. `read` takes a text and returns a dataclass of facts (probes/spans.py)."""

    name: str
    read: Callable[[str], object]
    seeds: Sequence[str]
    judged: frozenset[str] | None = JUDGED
    """Fields whose words, or numbers, are the reader's own: they are only placed. None: all are."""


@dataclass
class Outcome:
    inputs: int = 0
    characters: int = 0
    values: int = 0
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return (
            f"{name}: {self.inputs} inputs, {self.characters / 1e6:.1f} M characters, {self.values} values traced, "
            f"slowest {self.slowest_s * 1000:.0f} ms, {len(self.wrong)} failures"
        )


class HungError(Exception):
    pass


def fuzz(
    target: Target, seconds: float, seed: int = 0, most_failures: int = 5, most_inputs: float = math.inf
) -> Outcome:
    chance = random.Random(f"{target.name} {seed}")
    outcome = Outcome()
    until = time.monotonic() + seconds
    tokens = tokens_of(target.seeds)
    for text in [*target.seeds, ""]:
        if len(outcome.wrong) < most_failures:
            _try(target, text, outcome)
    most = most_inputs + outcome.inputs
    while time.monotonic() < until and outcome.inputs < most and len(outcome.wrong) < most_failures:
        _try(target, mutated(chance, target.seeds, tokens), outcome)
    return outcome


def _try(target: Target, text: str, outcome: Outcome) -> None:
    begin = time.process_time()
    try:
        with _limited(CPU_LIMIT_S):
            reading = target.read(text)
        outcome.wrong += [f"{wrong} in {text[:2000]!r}" for wrong in untrue(target, reading, text)[:3]]
    except Exception as error:
        outcome.wrong.append(f"{type(error).__name__}: {error} on {text[:2000]!r}")
        return
    outcome.inputs += 1
    outcome.characters += len(text)
    outcome.values += sum(span is not None for _, _, span in leaves(reading))
    outcome.slowest_s = max(outcome.slowest_s, time.process_time() - begin)


def untrue(target: Target, reading: object, text: str) -> list[str]:
    wrong = [f"{target.name}: {what}" for what in unplaced(reading, text)]
    for path, value, span in leaves(reading) if target.judged is not None else ():
        said = "" if span is None else span.of(text)
        judged = re.sub(r"\[[0-9]+\]", "", path).rpartition(".")[2] in (target.judged or ())
        unquoted = said.replace("\n> ", "\n")  # a value that goes over two lines of what was quoted in a mail
        if span is not None and not judged and not says(value, said) and not says(value, unquoted):
            wrong.append(f"{target.name}: {path} = {value!r} is not what {said[:200]!r} says")
    return wrong


_NUMBER = re.compile(r"\.?[0-9][0-9,_.]*(?:[eE][-+]?[0-9]+)?")
_CLOCK = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5}):([0-9]{2})(?![0-9:])")
_FACTORS = [
    1.0,
    0.001,
    0.01,
    512.0,
    4096.0,
    *(float(base**power) for base in (1000, 1024) for power in (1, 2, 3, 4, 5)),
]
_FACTORS += [1 / 1024, 1 / 1024**2]


def says(value: Any, text: str) -> bool:
    """The text holds the number (perhaps in another unit), or the words. What is a judgement (true or false, absent,
    a list) has no words of its own and is only placed."""
    if value is None or isinstance(value, bool | tuple | list | dict):
        return True
    if str(value) in ("inf", "-inf") and math.inf in _numbers(text):
        return True  # `1e999`
    if isinstance(value, int | float) and math.isfinite(value):
        # What a pane wrapped, and what is taken out before a row is read, stands within numbers too.
        numbers = [*_numbers(text), *_numbers(re.sub(r"[^!-~]+", "", plain_text(text)))]
        numbers += [1 / number for number in numbers if number]  # s/it and it/s
        return any(_same(abs(value), number * factor) for number in numbers for factor in _FACTORS)
    words = str(value).removeprefix("git+")  # pip's JSON says elsewhere of what kind a URL is
    return _bare(words) in _bare(text) or "".join(words.split()) in "".join(text.split())


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= max(0.5 if other >= 1 else 1e-9, 1e-6 * abs(other))


def _numbers(text: str) -> Iterator[float]:
    """All that are spelled there, read in any way, and their sum."""
    for hours, minutes, seconds in _CLOCK.findall(text[:4000]):
        yield int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    total = 0.0
    in_xml: set[float] = {0.0}
    for found in _NUMBER.findall(text[:4000]):
        plain = re.sub("[,_]", "", found).rstrip(".")
        for spelled in {found.rstrip(",._"), plain, *re.split("[,._]", found)}:
            try:
                yield float(spelled)
            except ValueError:
                continue
        number = float(plain) if plain.count(".") < 2 else 0.0
        total += number if number < ABSURD else 0.0
        if "</" in text and len(in_xml) < 256:
            in_xml |= {number + other for other in in_xml}
    yield total
    yield from in_xml  # the parts of a sum stand between other elements


def _bare(text: str) -> str:
    """Without what escaping, wrapping, padding and making it safe for a terminal add or take away, and in one case."""
    return re.sub(
        r"\\+[rnt\"']|[\s\"'\\]|\x1b\[[0-9;]*m", "", unquote(unescape(plain_text(text.replace("\r", ""))))
    ).casefold()


def tokens_of(seeds: Sequence[str]) -> list[str]:
    """The lines, words and marks that the seeds are made of."""
    tokens: dict[str, None] = {}
    for seed in seeds:
        for line in seed.splitlines(keepends=True)[:200]:
            tokens[line[:400]] = None
            tokens.update(dict.fromkeys(re.findall(r"\S+\s?|\s{2,}", line[:400])))
    return list(tokens) or ["a"]


def mutated(chance: random.Random, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    text = chance.choice(seeds)[: chance.choice((500, 4000, 20000))]
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        text = chance.choice(MUTATIONS)(chance, text, seeds, tokens)
    return text[:65536]


def _place(chance: random.Random, text: str) -> tuple[int, int]:
    one, other = chance.randint(0, len(text)), chance.randint(0, len(text))
    near = min(len(text), one + chance.choice((1, 3, 10, 60)))
    return (one, near) if chance.random() < 0.7 else (min(one, other), max(one, other))


Mutation = Callable[[random.Random, str, Sequence[str], Sequence[str]], str]


def _cut(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    begin, end = _place(chance, text)
    return text[:begin] + text[end:]


def _end_early(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    return text[: chance.randint(0, len(text))]


def _begin_late(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    return text[chance.randint(0, len(text)) :]


def _repeat(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    begin, end = _place(chance, text)
    return text[:end] + text[begin:end] * chance.choice((1, 2, 20)) + text[end:]


def _insert(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    begin, _ = _place(chance, text)
    return text[:begin] + chance.choice(tokens if chance.random() < 0.5 else STRANGE) + text[begin:]


def _replace(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    begin, end = _place(chance, text)
    return text[:begin] + chance.choice(tokens if chance.random() < 0.5 else STRANGE) + text[end:]


def _shuffle_lines(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    chance.shuffle(lines)
    return "".join(lines)


def _splice(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    other = chance.choice(seeds)
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _prefix_lines(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    prefix = chance.choice(("10:44:28  ", "[rank3]: ", "> ", "\t", "2024-05-01T10:00:00Z host app[1]: ", "stdout: "))
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def _wrap(chance: random.Random, text: str, seeds: Sequence[str], tokens: Sequence[str]) -> str:
    width = chance.choice((20, 80, 132))
    return "\n".join(line[at : at + width] for line in text.split("\n") for at in range(0, len(line) or 1, width))


MUTATIONS: tuple[Mutation, ...] = (
    *(_cut, _cut, _end_early, _begin_late, _repeat, _insert, _insert, _replace, _replace),
    *(_shuffle_lines, _splice, _prefix_lines, _wrap),
)


def slow_repetitions(
    target: Target, seconds: float, size: int = MEGABYTE, seed: int = 0, most: float = math.inf
) -> tuple[int, list[str]]:
    """Its own tokens, repeated to `size` and to a quarter of it: how many were tried within `seconds`, and those whose
    time grows faster than their length."""
    chance = random.Random(f"{target.name} {seed}")
    units = tokens_of(target.seeds)
    units += ["".join(chance.sample(units, min(3, len(units)))) for _ in range(50)] + list(target.seeds)
    chance.shuffle(units)
    until, tried, slow = time.monotonic() + seconds, 0, []
    for unit in units:
        if time.monotonic() > until or tried >= most:
            break
        tried += 1
        times = {part: _cpu_s(target, (unit * (size // part // len(unit) + 1))[: size // part]) for part in (4, 1)}
        if times[1] > LINEAR * times[4] + PAUSE_S:
            again = _cpu_s(target, (unit * (size // len(unit) + 1))[:size])  # once more: the machine may have paused
            if again > LINEAR * times[4] + PAUSE_S:
                slow.append(f"{target.name}: {unit[:200]!r}: {times[4]:.2f} s, four times that takes {again:.2f} s")
    return tried, slow


def _cpu_s(target: Target, text: str) -> float:
    """Without the garbage collector, which looks at all that is kept again and again, the tests' own objects too."""
    gc.collect()
    gc.disable()
    begin = time.process_time()
    try:
        with _limited(CPU_LIMIT_S):
            target.read(text)
        return time.process_time() - begin
    except HungError:
        return CPU_LIMIT_S
    finally:
        gc.enable()


def growth_bytes(target: Target, inputs: int = 25, seed: int = 0) -> int:
    """What stays in memory when the same inputs are read a third time."""
    chance = random.Random(f"{target.name} {seed}")
    tokens = tokens_of(target.seeds)
    texts = [mutated(chance, target.seeds, tokens) for _ in range(inputs)]
    tracemalloc.start()
    try:
        for _ in range(2):
            for text in texts:
                target.read(text)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for text in texts:
            target.read(text)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


class _limited:
    """Raises HungError in the block after so much of the process's time, also within a regular expression."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGVTALRM, _hung)
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)


def _hung(number: int, frame: object) -> None:
    raise HungError(f"no reading after {CPU_LIMIT_S:g} s")
