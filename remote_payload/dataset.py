"""Samples to training rows, with an account of every one of them.

Rule: made + failed + skipped = read. A part of the rows is written once; data that grew gets a further part, made from
the lines behind those that were read.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from chat import ChatFormat, encode_conversation, question_ids
from config import Config
from rows import RowWriter
from samples import BadSample, Conversation, DataError, Sample, Text, Unusable, read_samples
from tokens import Vocabulary

PLACES_KEPT = 20
WRITE_AT_ONCE = 640
"""Questions the target is given together."""

Row = Tuple[List[int], List[bool]]
Answer = Callable[[List[List[int]]], List[List[int]]]
"""Questions -> the target's answers, [] where it has none."""


@dataclass(frozen=True)
class Recipe:
    """How a sample becomes a row."""

    config: Config
    vocabulary: Vocabulary
    form: ChatFormat
    answer: Optional[Answer] = None
    """The target writes the answers anew."""


@dataclass
class Account:
    read: int = 0
    made: int = 0
    held_out: int = 0
    """Of those made."""
    failed: Dict[str, int] = field(default_factory=Counter)
    skipped: Dict[str, int] = field(default_factory=Counter)
    first_bad: List[str] = field(default_factory=list)
    lines: Dict[str, int] = field(default_factory=dict)
    """File -> lines read: where a further part begins."""

    @property
    def balanced(self) -> bool:
        return self.made + sum(self.failed.values()) + sum(self.skipped.values()) == self.read

    def line(self) -> str:
        reasons = [f"{count} {reason}" for counts in (self.failed, self.skipped) for reason, count in counts.items()]
        left_out = sum(self.failed.values()) + sum(self.skipped.values())
        return (
            f"data: {self.read} samples read, {self.made} rows made ({self.held_out} held out), "
            f"{left_out} left out" + (f": {', '.join(reasons)}" if reasons else "")
        )


def rows_folder(folder: Path, part: int) -> Path:
    return folder / f"rows-{part}"


def held_out_folder(folder: Path, part: int) -> Path:
    return folder / f"held-out-{part}"


def write_part(
    path: Path,
    folder: Path,
    part: int,
    *,
    done: Mapping[str, int],
    recipe: Recipe,
    tell: Callable[[str], None],
    on_sample: Callable[[], None],
) -> Account:
    """done: file -> lines that earlier parts were made of. tell: a line for each bad sample. Raises DataError."""
    account = Account(lines=dict(done))
    writers = RowWriter(rows_folder(folder, part)), RowWriter(held_out_folder(folder, part))
    made = _made(path, account, recipe, tell, on_sample)
    for number, (ids, learned) in enumerate(made, 1):
        held_out = number % recipe.config.data.held_out_every == 0
        writers[held_out].add(ids, learned)
        account.made += 1
        account.held_out += held_out
    for writer in writers:
        writer.close()
    if not account.balanced:
        raise AssertionError(f"samples were lost: {account}")
    return account


def _made(
    path: Path, account: Account, recipe: Recipe, tell: Callable[[str], None], on_sample: Callable[[], None]
) -> Iterator[Row]:
    settings = recipe.config.data
    questions: List[List[int]] = []

    def answered() -> Iterator[Row]:
        assert recipe.answer is not None
        for ids, written in zip(questions, recipe.answer(questions), strict=True):
            if len(written) < settings.min_response_tokens:
                account.failed["the target answered too little"] += 1
            else:
                yield ids + written, [False] * len(ids) + [True] * len(written)
        questions.clear()

    for file, number, sample in read_samples(path, account.lines):
        on_sample()
        if isinstance(sample, BadSample):
            if settings.strict:
                raise DataError(f"{sample.place}: {sample.reason}")
            if len(account.first_bad) < PLACES_KEPT:
                account.first_bad.append(f"{sample.place}: {sample.reason}")
                tell(f"left out {account.first_bad[-1]}")
            if sample.unfinished:
                continue  # it is read when it has its end
        account.lines[file] = number
        account.read += 1
        try:
            if recipe.answer is None:
                yield to_row(sample, recipe)
            else:
                questions.append(to_question(sample, recipe))
        except Unusable as why:
            account.skipped[str(why)] += 1
        if len(questions) >= WRITE_AT_ONCE:
            yield from answered()
    if questions:
        yield from answered()


def to_row(sample: Sample, recipe: Recipe) -> Row:
    """Raises Unusable, or DataError when there is no chat template."""
    settings = recipe.config.data
    ids, learned = _encode(sample, recipe)
    ids, learned = ids[: settings.max_tokens], learned[: settings.max_tokens]
    if not any(one and other for one, other in itertools.pairwise(learned)):
        raise Unusable("with nothing to learn within data.max_tokens")
    if sum(learned) < settings.min_response_tokens:
        raise Unusable("too short")
    return ids, learned


def to_question(sample: Sample, recipe: Recipe) -> List[int]:
    """What the target is to answer. Raises Unusable, or DataError when there is no chat template."""
    if isinstance(sample, Conversation):
        ids = question_ids(recipe.vocabulary, recipe.form, sample.messages)
    else:
        whole, learned = _encode(sample, recipe)
        ids = whole[: question_length(learned, recipe.config)]
    if len(ids) + recipe.config.data.min_response_tokens > recipe.config.data.max_tokens:
        raise Unusable("with a question that fills data.max_tokens")
    return ids


def question_length(learned: List[bool], config: Config) -> int:
    """Up to the first token to learn; of a text that is learned whole, its beginning."""
    return learned.index(True) or min(config.text.prompt_tokens, len(learned) // 2)


def _encode(sample: Sample, recipe: Recipe) -> Row:
    vocabulary = recipe.vocabulary
    if isinstance(sample, BadSample):
        raise Unusable("bad")
    if isinstance(sample, Conversation):
        ids, learned = encode_conversation(vocabulary, recipe.form, sample.messages)
    elif isinstance(sample, Text):
        ids = [*vocabulary.encode(sample.text), vocabulary.end_id]
        learned = [True] * len(ids)
    else:
        ids, learned = sample.ids, sample.learned or [True] * len(sample.ids)
    if max(ids) >= vocabulary.size:
        raise Unusable("with ids outside the vocabulary")
    if vocabulary.mask_id in ids:
        raise Unusable("with the mask token in it")
    if not any(learned):
        raise Unusable("with nothing to learn")
    return ids, learned


def account_record(account: Account) -> Dict[str, Any]:
    return {
        "read": account.read,
        "made": account.made,
        "held_out": account.held_out,
        "failed": dict(account.failed),
        "skipped": dict(account.skipped),
        "first_bad": account.first_bad,
        "lines": account.lines,
    }
