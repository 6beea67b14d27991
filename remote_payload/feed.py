"""The target's side of the hand-off: threads that turn sequences into batches with hidden states.

Rule: which sequences and anchors a batch gets depends on the seed and the batch's number alone, so a resumed run sees
exactly what an uninterrupted one would, with however many targets. Whatever goes wrong in a thread is raised in the
drafter at its next `get`.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

import torch
from anchors import PADDING, choose_anchors, document_starts
from config import Config
from order import rows_of_batch
from plan import bucket_of, length_buckets
from prepare import Prepared
from queues import ByteQueue, Closed
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    step: int
    """The optimiser step it is for; `train.accumulation` batches of each replica make one."""
    rows: List[int]
    """Which documents these are, in their order: those of a packed row follow one another."""
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

    def to(self, device: torch.device) -> Batch:
        moved = {name: part.to(device) for name, part in vars(self).items() if isinstance(part, Tensor)}
        return dataclasses.replace(self, **moved)


@dataclass(frozen=True)
class Course:
    """Which batch is whose. Batches are numbered from 1 over the whole run, whatever it was resumed with."""

    first_step: int
    last_step: int
    batches_met: int
    """Before the first step."""
    parts: int
    """`train.accumulation`"""
    replicas: int
    targets: int

    def number(self, step: int, part: int, replica: int) -> int:
        """part and replica from 0."""
        return self.met_after(step - 1) + part * self.replicas + replica + 1

    def met_after(self, step: int) -> int:
        return self.batches_met + (step + 1 - self.first_step) * self.parts * self.replicas

    def all(self) -> Iterator[Tuple[int, int, int]]:
        """Number, step and replica of every batch, in order."""
        for step in range(self.first_step, self.last_step + 1):
            for part in range(self.parts):
                for replica in range(self.replicas):
                    yield self.number(step, part, replica), step, replica

    def target(self, number: int) -> int:
        """Who makes it."""
        return (number - 1) % self.targets


def make_batch(number: int, prepared: Prepared, config: Config, step: int = 0) -> Batch:
    """number: from 1, over the whole run."""
    drawn = rows_of_batch(number, config.train.batch, prepared.chapters, config.seed)
    packs = [[row] if prepared.packs is None else prepared.packs[row] for row in drawn]
    longest = max(int(prepared.rows.lengths[pack].sum()) for pack in packs)
    width = bucket_of(longest, length_buckets(prepared.width, config.train.length_buckets))
    tokens, learned, document = prepared.rows.batch(packs, width=width, fill=prepared.vocabulary.end_id)
    anchors, kept = choose_anchors(document, learned, config.train.anchors, _chance(config.seed, number, 2))
    positions = document_positions(document)
    device = prepared.target.embed.weight.device
    tokens = tokens.to(device)
    features = prepared.target.features(tokens, None if positions is None else positions.to(device))
    return Batch(
        step,
        [row for pack in packs for row in pack],
        int((document != PADDING).sum()),
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


class Feed:
    """N target threads and M drafters: a queue from each to each, so that no order depends on who is faster."""

    def __init__(
        self, course: Course, targets: Sequence[Prepared], drafters: Sequence[torch.device], config: Config
    ) -> None:
        """targets: what each target thread works with; its `target` is run by that thread alone."""
        max_bytes = int(config.queue.max_mib * 2**20 / len(targets))
        self.queues: List[List[ByteQueue[Batch]]] = [[ByteQueue(max_bytes) for _ in targets] for _ in drafters]
        """[replica][target]"""
        self._course, self._drafters, self._config = course, drafters, config
        self._threads = [
            threading.Thread(target=self._run, args=(number, prepared), name=f"target-{number}", daemon=True)
            for number, prepared in enumerate(targets)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self, wait_s: float) -> None:
        for queue in self._all():
            queue.close()
        for thread in self._threads:
            thread.join(wait_s)

    def _all(self) -> List[ByteQueue[Batch]]:
        return [queue for of_replica in self.queues for queue in of_replica]

    @property
    def bytes_held(self) -> int:
        return sum(queue.bytes_held for queue in self._all())

    @property
    def drafter_wait_s(self) -> float:
        """A replica's, on average."""
        return sum(queue.get_wait_s for queue in self._all()) / len(self.queues)

    @property
    def target_wait_s(self) -> float:
        """A target's, on average."""
        return sum(queue.put_wait_s for queue in self._all()) / len(self._threads)

    def _run(self, target: int, prepared: Prepared) -> None:
        torch.set_num_threads(self._config.threads)
        device = prepared.target.embed.weight.device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            for number, step, replica in self._course.all():
                if self._course.target(number) == target:
                    batch = make_batch(number, prepared, self._config, step).to(self._drafters[replica])
                    self.queues[replica][target].put(batch, batch.size_bytes)
        except Closed:
            return
        except BaseException as error:
            for queue in self._all():
                queue.close(error)
        else:
            for of_replica in self.queues:
                of_replica[target].close()


def _chance(seed: int, number: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) * 8 + stream)
