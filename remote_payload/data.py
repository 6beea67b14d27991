"""The run's `data`, read into rows once and recorded; on resuming, what it has grown by.

Rule: the rows that were there stay as they are. Data that is neither the same nor grown at its end is refused: the rows
of the checkpoint's run would be others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import contract
import torch
from chat import chat_format
from config import Config
from dataset import Recipe, account_record, write_part
from identity import identify, other_than_grown
from progress import Progress
from samples import DataError, data_files
from stopping import StopRequest
from target import Target, continue_greedily
from tokens import Vocabulary

RECORD = "data.json"
"""In the prepared folder: the data's identity, format, and the account of each part."""
TELL_EVERY = 1000
TOGETHER = 64


def read_record(prepared: Path) -> Optional[Dict[str, Any]]:
    path = prepared / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def data_facts(prepared: Path) -> Optional[Dict[str, Any]]:
    """For runtime.json: what the rows were made of. None when the text was made here."""
    record = read_record(prepared)
    if record is None:
        return None
    counts = {name: sum(part[name] for part in record["parts"]) for name in ("read", "made", "held_out")}
    rows = {**counts, "left_out": counts["read"] - counts["made"]}
    return {"path": record["path"], "files": record["files"], "format": record["format"], "rows": rows}


def read_data(
    config: Config,
    path: Path,
    folder: Path,
    vocabulary: Vocabulary,
    make_target: Callable[[], Target],
    progress: Progress,
    stop: StopRequest,
) -> None:
    """A further part of rows in `folder`, from what no part was made of. Raises DataError, OSError, StopAsked."""
    form = chat_format(vocabulary, config.data.chat_template, config.data.thinking)
    known = read_record(folder) or {"files": [], "format": form.identity, "parts": []}
    files = data_files(path)
    problems = other_than_grown(known["files"], files)
    if known["format"] != form.identity:
        problems.append(f"the chat format was {known['format']}, is {form.identity}")
    if problems:
        raise DataError(f"{path} is not the data the checkpoint was trained on: " + "; ".join(problems))
    identity = identify(files)
    if identity == known["files"]:
        progress.say(f"data: {path} is what it was")
        return
    read = 0

    def on_sample() -> None:
        nonlocal read
        read += 1
        stop.leave_if_asked()
        if read % TELL_EVERY == 0:
            progress.detail(f"data: {read} samples read")

    answer = answerer(config, make_target(), vocabulary, progress, stop) if config.data.regenerate else None
    account = write_part(
        path,
        folder,
        len(known["parts"]),
        done=known["parts"][-1]["lines"] if known["parts"] else {},
        recipe=Recipe(config, vocabulary, form, answer),
        tell=progress.say,
        on_sample=on_sample,
    )
    progress.say(account.line())
    parts = [*known["parts"], account_record(account)]
    _refuse_nothing(parts, config)
    record = {"path": str(path), "files": identity, "format": form.identity, "parts": parts}
    (folder / RECORD).unlink(missing_ok=True)  # it may be shared with the run that is resumed
    contract.write_json(folder / RECORD, record)


def _refuse_nothing(parts: List[Dict[str, Any]], config: Config) -> None:
    made, held_out = (sum(part[name] for part in parts) for name in ("made", "held_out"))
    if not any(part["read"] for part in parts):
        raise DataError("there is no sample in it")
    if not made:
        raise DataError("no sample gave a row: " + str(parts[-1]["first_bad"][:3] or parts[-1]["skipped"]))
    if not held_out:
        raise DataError(
            f"no sample is held out to measure on: {made} rows were made and one of every "
            f"{config.data.held_out_every} is kept; lower data.held_out_every"
        )


def answerer(
    config: Config, target: Target, vocabulary: Vocabulary, progress: Progress, stop: StopRequest
) -> Callable[[List[List[int]]], List[List[int]]]:
    """The target's greedy answers; questions of one length go through it together."""

    def answers(questions: List[List[int]]) -> List[List[int]]:
        written: List[List[int]] = [[] for _ in questions]
        for length in sorted({len(question) for question in questions}):
            same = [place for place, question in enumerate(questions) if len(question) == length]
            for start in range(0, len(same), TOGETHER):
                places = same[start : start + TOGETHER]
                progress.detail(f"target answers {len(places)} questions of {length} tokens")
                prompts = torch.tensor([questions[place] for place in places], device=target.embed.weight.device)
                tokens, lengths = continue_greedily(
                    target, prompts, config.data.max_tokens, vocabulary.end_ids, stop.leave_if_asked
                )
                for place, row, end in zip(places, tokens.tolist(), lengths.tolist(), strict=True):
                    written[place] = row[length:end]
        return written

    return answers
