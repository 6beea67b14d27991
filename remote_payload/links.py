"""What the processes of a run say to each other: torch.distributed, in groups that cannot get in each other's way.

Rule: every call that needs another rank raises PeerLost when that one is gone, so that a rank can tell its own fault
from another's. Nothing listens beyond loopback: ranks meet at a file in the run's folder.

Groups: all ranks (gloo, small messages); each target with each drafter (NCCL on GPUs: hidden states); the drafters
(gloo: what they tell each other; NCCL: gradients). A group of its own for each hand-off: NCCL runs what one group does
in order, and a hand-off must wait neither for an average nor for another target.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
from ranks import Rank, pair_order
from runtime import uuid_of
from torch import Tensor

PREPARED = "prepared"
NEVER = datetime.timedelta(days=20)
"""Others may compile, save, or wait for data for long. Who dies is seen by the supervisor, a stall by the watchdog."""


class PeerLost(RuntimeError):
    """Another rank is gone."""


@contextlib.contextmanager
def needing(whom: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"lost touch with {whom}: {str(error).strip().splitlines()[0][:200]}") from error


class Member:
    """One rank before it is joined to the others: torch.distributed begins when everything is loaded, for libraries
    that find it begun leave to its rank 0 what the leader does here (transformers' save_pretrained)."""

    def __init__(self, rank: Rank, ranks: List[Rank], job: Path) -> None:
        """job: a folder of this run's processes alone."""
        self.rank, self._ranks, self._job = rank, ranks, job
        self.device = torch.device("cpu") if rank.visible is None else torch.device("cuda", 0)
        self.targets = sum(one.role == "target" for one in ranks)
        self.drafters = len(ranks) - self.targets

    def say_prepared(self) -> None:
        """By the leader."""
        (self._job / PREPARED).touch()

    def wait_for_prepared(self) -> None:
        """However long it takes: the supervisor ends whoever waits for a leader that is gone."""
        while not (self._job / PREPARED).exists():
            time.sleep(0.1)

    def join(self) -> Links:
        """Returns when all have come. Raises PeerLost."""
        links = Links(self.rank, self._ranks, self._job / "meeting", self.device)
        links.connect()
        return links


class Links:
    """Of one rank."""

    def __init__(self, rank: Rank, ranks: List[Rank], meeting: Path, device: torch.device) -> None:
        """meeting: a file that all ranks name, and no run before. Returns when all have come. Raises PeerLost."""
        self.rank, self.ranks, self.device = rank, ranks, device
        self.targets = sum(one.role == "target" for one in ranks)
        self.drafters = len(ranks) - self.targets
        data = "nccl" if device.type == "cuda" else "gloo"
        with needing("the other ranks"):
            dist.init_process_group(
                "gloo",
                init_method=f"file://{meeting}",
                rank=rank.number,
                world_size=len(ranks),
                timeout=NEVER,
            )
            # Every rank makes every group, in the same order: torch asks for that.
            self._pairs: Dict[Tuple[int, int], Any] = {
                (target, drafter): dist.new_group([target, self.rank_of_drafter(drafter)], NEVER, data)
                for target, drafter in pair_order(self.targets, self.drafters)
            }
            every_drafter = [self.rank_of_drafter(drafter) for drafter in range(self.drafters)]
            self._drafters = dist.new_group(every_drafter, NEVER, "gloo")
            self._gradients = dist.new_group(every_drafter, NEVER, data)

    def introduce(self) -> List[Dict[str, Any]]:
        """Who is there, for the record. Waits for all."""
        on_gpu = self.device.type == "cuda"
        name = torch.cuda.get_device_name(self.device) if on_gpu else None
        uuid = uuid_of(self.device.index or 0) if on_gpu else None
        return self.gather({**dataclasses.asdict(self.rank), "pid": os.getpid(), "device_name": name, "uuid": uuid})

    def rank_of_drafter(self, drafter: int) -> int:
        return self.targets + drafter

    def connect(self) -> None:
        """Makes the connections, in one order for all, before anything runs beside it: two that are made at once,
        in different orders, wait for each other for ever."""
        word = torch.zeros(1, device=self.device)
        for target, drafter in pair_order(self.targets, self.drafters):
            if self.rank.number == target:
                self.send(drafter, word)
            elif self.rank.number == self.rank_of_drafter(drafter):
                self.receive(target, word)
            self.finish_device()
        if self.rank.role == "drafter" and self.drafters > 1:
            self.add_up([word])
            self.finish_device()

    def finish_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def close(self) -> None:
        """When all have come here."""
        self.wait_for_all()
        dist.destroy_process_group()

    def wait_for_all(self) -> None:
        with needing("the other ranks"):
            dist.barrier()

    def gather(self, word: Any) -> List[Any]:
        """What every rank says, in their order."""
        words: List[Any] = [None] * len(self.ranks)
        with needing("the other ranks"):
            dist.all_gather_object(words, word)
        return words

    def gather_drafters(self, word: Any) -> List[Any]:
        """What every drafter says, in their order."""
        words: List[Any] = [None] * self.drafters
        with needing("the other drafters"):
            dist.all_gather_object(words, word, group=self._drafters)
        return words

    def add_up(self, tensors: List[Tensor]) -> None:
        """Each becomes its sum over the drafters, in place."""
        with needing("the other drafters"):
            works = [dist.all_reduce(tensor, group=self._gradients, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()

    # Hand-off: the target offers, the drafter answers when it has room, then the states themselves are sent.

    def offer(self, drafter: int, words: List[int]) -> None:
        with needing(f"drafter {drafter}"):
            dist.send(torch.tensor(words), self.rank_of_drafter(drafter))

    def answer(self, drafter: int) -> int:
        word = torch.zeros(1, dtype=torch.int64)
        with needing(f"drafter {drafter}"):
            dist.recv(word, self.rank_of_drafter(drafter))
        return int(word)

    def await_offer(self, target: int, length: int) -> List[int]:
        words = torch.zeros(length, dtype=torch.int64)
        with needing(f"target {target}"):
            dist.recv(words, target)
        got: List[int] = words.tolist()
        return got

    def give_answer(self, target: int, word: int) -> None:
        with needing(f"target {target}"):
            dist.send(torch.tensor([word]), target)

    def send(self, drafter: int, states: Tensor) -> None:
        with needing(f"drafter {drafter}"):
            dist.send(states, self.rank_of_drafter(drafter), group=self._pairs[self.rank.index, drafter])

    def receive(self, target: int, into: Tensor) -> None:
        with needing(f"target {target}"):
            dist.recv(into, target, group=self._pairs[target, self.rank.index])


def lost_peer(error: Optional[BaseException]) -> Optional[PeerLost]:
    """In what an error came from."""
    while error is not None:
        if isinstance(error, PeerLost):
            return error
        error = error.__cause__
    return None
