"""The drafter replicas of one process and the threads that run them.

Rule: every replica takes the same step from the same gradients, so their weights stay equal bit for bit; whatever goes
wrong in one of them is raised in the thread that asked.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar

import torch
from config import Config
from drafter import Drafter
from feed import Batch, Course
from forward import Ends, step_loss
from loss import BlockLoss
from optimise import NotANumber, Optimisation
from progress import Progress
from queues import ByteQueue
from sealing import Seal
from stopping import StopRequest

HASHED_AT_ONCE = 2**20
ODD = 0x1E3779B97F4A7C15
Result = TypeVar("Result")
Word = TypeVar("Word")


class ReplicasDiffer(RuntimeError):
    """Two replicas no longer have the same weights."""


@dataclass(frozen=True)
class Learned:
    """What one replica made of its batches of a step."""

    loss: float
    tokens: int
    rows: List[int]
    outcome: Optional[BlockLoss]
    """Of the last batch. None: it is in another process."""
    compiled: int = 0
    """Graphs compiled since the last look that should have been compiled before."""


class Replica:
    """One drafter on its device. `queues`: one from each target; which of them a batch comes from is its number's."""

    def __init__(self, number: int, drafter: Drafter, ends: Ends, mask_id: int, config: Config) -> None:
        """number: from 0."""
        self.number, self.drafter, self.ends = number, drafter, ends
        self.optimisation = Optimisation(drafter, config)
        self.queues: List[ByteQueue[Batch]] = []
        self._mask_id, self._config = mask_id, config

    @property
    def device(self) -> torch.device:
        return next(self.drafter.parameters()).device

    def learn(self, step: int, course: Course) -> Learned:
        """The gradients of its share of a step. Raises NotANumber, and what went wrong in a target's thread."""
        loss, tokens = 0.0, 0
        rows: List[int] = []
        for part in range(course.parts):
            batch = self.queues[course.target(course.number(step, part, self.number))].get()
            outcome = step_loss(batch, self.ends, self.drafter, self._mask_id, self._config)
            rows += batch.rows
            try:
                loss += self.optimisation.accumulate(outcome.loss)
            except NotANumber as error:
                raise NotANumber(f"{error}; rows {rows}") from None
            tokens += batch.token_count
        return Learned(loss, tokens, rows, outcome)


class Crew:
    """One replica works in the caller's thread; several in a thread each."""

    def __init__(self, replicas: Sequence[Replica], threads: int) -> None:
        """threads: CPU threads of each."""
        self.replicas = list(replicas)
        self._workers = [
            concurrent.futures.ThreadPoolExecutor(1, f"drafter-{one.number}", _prepare_thread, (one.device, threads))
            for one in (replicas if len(replicas) > 1 else [])
        ]

    leads = True
    """The records and the checkpoints are written here."""

    def learn(self, step: int, course: Course, seal: Seal) -> List[Learned]:
        """Every replica's share of a step, and what of it was compiled that should not have been.

        Raises what went wrong in any of them, Recompiled too.
        """
        first, *others = self.each(lambda replica: replica.learn(step, course))
        return [dataclasses.replace(first, compiled=seal.look()), *others]

    def stop_asked(self, stop: StopRequest) -> bool:
        """The same answer everywhere."""
        return stop.asked

    def gather(self, word: Word) -> List[Word]:
        """What every process of drafters says."""
        return [word]

    def compile_in_turn(self, compile_own: Callable[[], None], progress: Progress) -> None:
        compile_own()

    def each(self, work: Callable[[Replica], Result]) -> List[Result]:
        """In the order of the replicas. Raises what the first to fail raised, without waiting for the others."""
        if not self._workers:
            return [work(self.replicas[0])]
        running = [worker.submit(work, one) for worker, one in zip(self._workers, self.replicas, strict=True)]
        done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in done:
            future.result()
        return [future.result() for future in running]

    @torch.no_grad()
    def average_gradients(self) -> None:
        """Summed in the order of the replicas, so that the result does not depend on who was first."""
        if len(self.replicas) == 1:
            return
        for parameters in zip(*(one.drafter.parameters() for one in self.replicas), strict=True):
            total = parameters[0].grad
            for other in parameters[1:]:
                total += other.grad.to(total.device)
            total /= len(self.replicas)
            for other in parameters[1:]:
                other.grad.copy_(total)

    def check_equal(self, step: int) -> None:
        """Raises ReplicasDiffer."""
        compare_weights([weight_hashes(one.drafter) for one in self.replicas], step)

    def close(self) -> None:
        for worker in self._workers:
            worker.shutdown(wait=False, cancel_futures=True)


def compare_weights(of_replicas: Sequence[Dict[str, int]], step: int) -> None:
    """Raises ReplicasDiffer."""
    first, *others = of_replicas
    for number, hashes in enumerate(others, start=1):
        different = [name for name, value in hashes.items() if value != first[name]]
        if different:
            raise ReplicasDiffer(
                f"after step {step} replica {number} differs from replica 0 in {len(different)} tensors: "
                f"{', '.join(different[:3])}"
            )


@torch.no_grad()
def weight_hashes(drafter: Drafter) -> Dict[str, int]:
    """For each tensor a hash of its bits, in their order; made on the device, and the same on every one."""
    state = {name: tensor.detach().reshape(-1).view(torch.int32) for name, tensor in drafter.state_dict().items()}
    hashes = torch.stack([_hash(bits) for bits in state.values()]).tolist()
    return dict(zip(state, hashes, strict=True))


def _hash(bits: torch.Tensor) -> torch.Tensor:
    """int32 [N] -> int64, over wrapping arithmetic. Another factor for each place: two values that are swapped show."""
    places = torch.arange(1, 2 * min(HASHED_AT_ONCE, len(bits)), 2, dtype=torch.int64, device=bits.device) * ODD
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for part in bits.split(HASHED_AT_ONCE):
        total = total * ODD + (part * places[: len(part)]).sum()
    return total


def _prepare_thread(device: torch.device, threads: int) -> None:
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)


def mean(values: Sequence[Any]) -> Optional[float]:
    return sum(float(value) for value in values) / len(values) if values else None
