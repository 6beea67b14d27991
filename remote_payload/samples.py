"""Training samples from files: conversations, text or token ids, one JSON object a line; or a `datasets` folder.

Rule: a sample that cannot be used is a BadSample with its file and line and the reason; nothing is skipped in silence.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

DATASETS_MARKS = ("dataset_info.json", "state.json", "dataset_dict.json")
SUFFIX = ".jsonl"
HALF = b"\\ud"
"""How the escape of half a UTF-16 pair begins."""
ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}
"""Other names for the roles that chat templates know."""


class DataError(ValueError):
    """Data that cannot be trained on."""


class Unusable(Exception):
    """Why a good sample gives no row."""


@dataclass(frozen=True)
class Conversation:
    place: str
    messages: List[Dict[str, str]]
    """role and content each."""


@dataclass(frozen=True)
class Text:
    place: str
    text: str


@dataclass(frozen=True)
class TokenIds:
    place: str
    ids: List[int]
    learned: Optional[List[bool]]
    """None: all of them."""


@dataclass(frozen=True)
class BadSample:
    place: str
    """File and line."""
    reason: str
    unfinished: bool = False
    """The file's last line, without its end: still being written."""


Sample = Union[Conversation, Text, TokenIds, BadSample]


def data_files(path: Path) -> List[Path]:
    """The files that hold the data, in a fixed order. Raises DataError."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"no data at {path}")
    if is_datasets_folder(path):
        files = sorted(one for one in path.rglob("*") if one.is_file())
    else:
        files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise DataError(f"{path} holds no {SUFFIX} file and is no `datasets` folder")
    return files


def is_datasets_folder(path: Path) -> bool:
    return path.is_dir() and any((path / mark).is_file() for mark in DATASETS_MARKS)


def read_samples(path: Path, done: Mapping[str, int]) -> Iterator[Tuple[str, int, Sample]]:
    """File, line (from 1) and sample. done: file -> lines that were read before. Raises DataError."""
    if is_datasets_folder(path):
        for number, record in enumerate(_datasets_rows(path, done.get(path.name, 0)), done.get(path.name, 0) + 1):
            yield path.name, number, parse_record(f"{path.name}: row {number}", record)
        return
    for file in data_files(path):
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if number > done.get(file.name, 0) and line.strip():
                    yield file.name, number, parse_line(f"{file.name}:{number}", line)


def parse_line(place: str, line: bytes) -> Sample:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadSample(place, f"not JSON: {error}", unfinished=not line.endswith(b"\n"))
    if HALF in line.lower() and not _is_text(json.dumps(record, ensure_ascii=False)):
        return BadSample(place, "half a character (a lone \\ud8.. to \\udf..), as of an emoji that was cut")
    return parse_record(place, record)


def _is_text(text: str) -> bool:
    """JSON can name what no text may hold, and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_record(place: str, record: Any) -> Sample:
    if not isinstance(record, dict):
        return BadSample(place, "not an object")
    # In a table every row has every column, the unused ones empty.
    said = record.get("messages") if record.get("conversations") is None else record["conversations"]
    if said is not None:
        return _conversation(place, said)
    if record.get("input_ids") is not None:
        return _token_ids(place, record["input_ids"], record.get("loss_mask"))
    if "text" in record:
        text = record["text"]
        return Text(place, text) if isinstance(text, str) and text else BadSample(place, "text is not text, or empty")
    names = ", ".join(repr(str(name)[:40]) for name in sorted(record, key=str)[:8])
    return BadSample(place, f"none of conversations, messages, text, input_ids; it has {names or 'nothing'}")


def _conversation(place: str, said: Any) -> Sample:
    if not isinstance(said, list) or not said:
        return BadSample(place, "the conversation is not a list of messages, or empty")
    messages = []
    for number, message in enumerate(said, 1):
        if not isinstance(message, dict):
            return BadSample(place, f"message {number} is not an object")
        role, content = message.get("role", message.get("from")), message.get("content", message.get("value"))
        if not isinstance(role, str) or not isinstance(content, str):
            return BadSample(place, f"message {number} lacks role or content as text")
        messages.append({"role": ROLES.get(role, role), "content": content})
    if not any(message["role"] == "assistant" for message in messages):
        return BadSample(place, "no message is the assistant's")
    return Conversation(place, messages)


def _token_ids(place: str, ids: Any, mask: Any) -> Sample:
    if not isinstance(ids, list) or not ids or not all(type(one) is int and one >= 0 for one in ids):
        return BadSample(place, "input_ids is not a list of whole numbers, or empty")
    if mask is None:
        return TokenIds(place, ids, None)
    if not isinstance(mask, list) or len(mask) != len(ids) or not all(one in (0, 1) for one in mask):
        return BadSample(place, f"loss_mask is not {len(ids)} zeros and ones")
    return TokenIds(place, ids, [bool(one) for one in mask])


def _datasets_rows(path: Path, begin: int) -> Iterator[Any]:
    if importlib.util.find_spec("datasets") is None:
        raise DataError(
            f"{path} is a folder of the `datasets` package, which this Python has not: "
            f"pip install datasets, or write the data as {SUFFIX}"
        )
    import datasets  # type: ignore[import-not-found,unused-ignore]

    loaded = datasets.load_from_disk(str(path))
    if hasattr(loaded, "keys"):
        raise DataError(f"{path} holds several splits ({', '.join(loaded)}): name the folder of one of them")
    for row in range(begin, len(loaded)):
        yield loaded[row]
