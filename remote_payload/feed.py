"""The target's side of the hand-off: a thread that turns sequences into batches with hidden states.

Rule: which sequences and anchors a batch gets depends on the seed and the batch's number alone, so a resumed run sees
exactly what an uninterrupted one would. Whatever goes wrong in the thread is raised in the drafter at its next `get`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import List, Optional

import torch
from anchors import PADDING, choose_anchors, document_starts
from config import Config
from order import rows_of_batch
from prepare import Prepared
from queues import ByteQueue, Closed
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    step: int
    """The optimiser step it is for; `train.accumulation` batches make one."""
    rows: List[int]
    """Which sequences these are."""
    token_count: int
    """Without padding."""
    tokens: Tensor
    """[B, T]"""
    document: Tensor
    """[B, T], the number of the document each token is of; PADDING where there is none"""
    learned: Tensor
    """[B, T], the tokens of responses"""
    anchors: Tensor
    """[B, N]"""
    kept: Tensor
    """[B, N]"""
    features: Tensor
    """[B, T, K*H], the target's hidden states"""

    @property
    def size_bytes(self) -> int:
        return sum(int(part.nbytes) for part in vars(self).values() if isinstance(part, Tensor))


def make_batch(number: int, prepared: Prepared, config: Config) -> Batch:
    """number: from 1, over the whole run."""
    step = (number - 1) // config.train.accumulation + 1
    rows = rows_of_batch(number, config.train.batch, prepared.chapters, config.seed)
    tokens, learned, length = prepared.rows.batch(rows, width=prepared.width, fill=prepared.vocabulary.end_id)
    document = torch.where(torch.arange(tokens.shape[1]) < length[:, None], 0, PADDING)
    anchors, kept = choose_anchors(document, learned, config.train.anchors, _chance(config.seed, number, 2))
    positions = document_positions(document)
    device = prepared.target.embed.weight.device
    tokens = tokens.to(device)
    features = prepared.target.features(tokens, None if positions is None else positions.to(device))
    return Batch(
        step,
        rows,
        int(length.sum()),
        tokens,
        document.to(device),
        learned.to(device),
        anchors.to(device),
        kept.to(device),
        features,
    )


def document_positions(document: Tensor) -> Optional[Tensor]:
    """[B, T]: where each token stands in its document. None when every row holds one: then that is where it stands."""
    starts = document_starts(document)
    if not bool(starts[document != PADDING].any()):
        return None
    return torch.arange(document.shape[1]) - starts


class TargetThread(threading.Thread):
    """Makes the batches of steps first_step .. config.steps, then closes the queue."""

    def __init__(self, queue: ByteQueue[Batch], prepared: Prepared, config: Config, first_step: int) -> None:
        super().__init__(name="target-0", daemon=True)
        self._queue, self._prepared, self._config = queue, prepared, config
        self._first_step = first_step

    def run(self) -> None:
        torch.set_num_threads(self._config.threads)
        try:
            parts = self._config.train.accumulation
            for number in range((self._first_step - 1) * parts + 1, self._config.steps * parts + 1):
                batch = make_batch(number, self._prepared, self._config)
                self._queue.put(batch, batch.size_bytes)
        except Closed:
            return
        except BaseException as error:
            self._queue.close(error)
        else:
            self._queue.close()


def _chance(seed: int, number: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) * 8 + stream)
