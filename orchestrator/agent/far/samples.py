"""How fast a run was over its length: a few lines of metrics.jsonl or of its log, evenly spread.

Rule: bounded: so many pieces are read, however long the file.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, List

from .records import Record, contract

METRICS_PIECE = 4096
LOG_PIECE = 512
LINE_BYTES = 240
RATE = "tokens_per_s"


def rate_samples(folder: str, count: int) -> Record | None:
    """{"tokens_per_s": numbers} of the payload's metrics, else {"lines": of the log}; the first is the oldest."""
    with contextlib.suppress(OSError):
        told = _spread(os.path.join(folder, contract.METRICS), count, METRICS_PIECE, _rate_in)
        if told:
            return {RATE: told}
    with contextlib.suppress(OSError):
        lines = _spread(os.path.join(folder, contract.RUN_LOG), count, LOG_PIECE, _line_in)
        return {"lines": lines} if lines else None
    return None


def _spread(path: str, count: int, piece: int, find: Callable[[List[bytes]], Any]) -> List[Any]:
    """Raises OSError."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= count * piece:
            lines = [line for line in os.pread(stream.fileno(), size, 0).split(b"\n")[:-1] if line]
            each = max(1, -(-len(lines) // count)) if count > 0 else 1
            groups = [lines[at : at + each] for at in range(0, len(lines), each)]
        else:
            groups = []
            for number in range(count):
                offset = (size - piece) * number // max(1, count - 1)
                text = os.pread(stream.fileno(), piece, offset)
                # Its first and its last line are cut, but for the file's own.
                groups.append(text.split(b"\n")[0 if offset == 0 else 1 : -1])
        found = [find(group) for group in groups]
    return [one for one in found if one is not None]


def _rate_in(lines: List[bytes]) -> Any:
    """The last one that is told."""
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            value = json.loads(line.decode("utf-8")).get(RATE)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return value
    return None


def _line_in(lines: List[bytes]) -> Any:
    """The last that may tell a rate."""
    for line in reversed(lines):
        last = line.rstrip(b"\r").rpartition(b"\r")[2]  # a bar that is drawn over and over
        if b"/s" in last or b"/it" in last or b"per" in last:
            return last[:LINE_BYTES].decode("utf-8", "replace")
    return None
