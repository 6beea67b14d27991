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
    batch = plan_batch(number, prepared, config, step)
    positions = document_positions(batch.document)
    device = prepared.target.embed.weight.device
    batch = batch.to(device)
    features = prepared.target.features(batch.tokens, None if positions is None else positions.to(device))
    return dataclasses.replace(batch, features=features)


def plan_batch(number: int, prepared: Prepared, config: Config, step: int) -> Batch:
    """All but the hidden states, on the CPU: whoever has the rows can make it, and need not be sent it."""
    drawn = rows_of_batch(number, config.train.batch, prepared.chapters, config.seed)
    packs = [[row] if prepared.packs is None else prepared.packs[row] for row in drawn]
    longest = max(int(prepared.rows.lengths[pack].sum()) for pack in packs)
    width = bucket_of(longest, length_buckets(prepared.width, config.train.length_buckets))
    tokens, learned, document = prepared.rows.batch(packs, width=width, fill=prepared.vocabulary.end_id)
    anchors, kept = choose_anchors(document, learned, config.train.anchors, _chance(config.seed, number, 2))
    rows = [row for pack in packs for row in pack]
    count = int((document != PADDING).sum())
    return Batch(step, rows, count, tokens, document, learned, anchors, kept, torch.empty(0))


def document_positions(document: Tensor) -> Optional[Tensor]:
    """[B, T]: where each token stands in its document. None when every row holds one: then that is where it stands."""
    starts = document_starts(document)
    if not bool(starts[document != PADDING].any()):
        return None
    return torch.arange(document.shape[1]) - starts


@dataclass(frozen=True)
class Waits:
    """Of all queues there are here, since the beginning."""

    get_s: float
    """Drafters waited for hidden states."""
    put_s: float
    """Targets waited for room."""
    bytes_held: int


class Queues:
    """From each target to each drafter that is here."""

    def __init__(self, drafters: int, targets: int, config: Config) -> None:
        max_bytes = int(config.queue.max_mib * 2**20 / targets)
        self.queues: List[List[ByteQueue[Batch]]] = [
            [ByteQueue(max_bytes) for _ in range(targets)] for _ in range(drafters)
        ]
        """[replica][target]"""
        self._threads: List[threading.Thread] = []
        """What fills them."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self, wait_s: float) -> None:
        for queue in self.all_queues():
            queue.close()
        for thread in self._threads:
            thread.join(wait_s)

    def all_queues(self) -> List[ByteQueue[Batch]]:
        return [queue for of_replica in self.queues for queue in of_replica]

    def waits(self) -> Waits:
        every = self.all_queues()
        return Waits(
            sum(queue.get_wait_s for queue in every),
            sum(queue.put_wait_s for queue in every),
            sum(queue.bytes_held for queue in every),
        )

    def target_peaks_mib(self) -> Optional[List[float]]:
        """Peak memory of targets in other processes, where that is known."""
        return None


class Feed(Queues):
    """N target threads and M drafters: a queue from each to each, so that no order depends on who is faster."""

    def __init__(
        self, course: Course, targets: Sequence[Prepared], drafters: Sequence[torch.device], config: Config
    ) -> None:
        """targets: what each target thread works with; its `target` is run by that thread alone."""
        super().__init__(len(drafters), len(targets), config)
        self._course, self._drafters, self._config = course, drafters, config
        self._threads = [
            threading.Thread(target=self._run, args=(number, prepared), name=f"target-{number}", daemon=True)
            for number, prepared in enumerate(targets)
        ]

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
            for queue in self.all_queues():
                queue.close(error)
        else:
            for of_replica in self.queues:
                of_replica[target].close()


def _chance(seed: int, number: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) * 8 + stream)
