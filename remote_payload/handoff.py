"""Hidden states from the process of a target to that of a drafter.

Rule: the bound and the waits are those of queues.py. The queue stands in the drafter's process; a target sends only
what the drafter has room for, so neither device ever spins in a transfer that the other side has not begun. Only the
hidden states travel: everything else of a batch is a function of its number, and made on both sides.

A target that hears that a drafter takes no more tells the other drafters and ends; drafters stop after the same step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from typing import Dict, Iterator, List, Optional, Set, Tuple

import torch
from config import Config
from feed import Batch, Course, Queues, make_batch, plan_batch
from links import Links
from prepare import Prepared
from queues import Closed

NO_MORE, SEND = 0, 1
"""What a drafter answers."""
END = -1
"""Offered in place of a batch's number: there will be none."""
OFFER = 2
"""Words of an offer: the batch's number, and the target's peak memory in bytes."""


def serve(course: Course, prepared: Prepared, config: Config, links: Links) -> None:
    """A target's whole work in training. Raises PeerLost."""
    device = prepared.target.embed.weight.device
    own = (item for item in course.all() if course.target(item[0]) == links.rank.index)
    for number, step, replica in own:
        features = make_batch(number, prepared, config, step).features
        links.finish_device()
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        links.offer(replica, [number, peak])
        if links.answer(replica) == NO_MORE:
            for other in expecting(own, course.replicas) - {replica}:
                links.offer(other, [END, 0])
            return
        links.send(replica, features)


def expecting(coming: Iterator[Tuple[int, int, int]], replicas: int) -> Set[int]:
    """Who would get one of the batches that are still to come."""
    found: Set[int] = set()
    for _, _, replica in coming:
        found.add(replica)
        if len(found) == replicas:
            break
    return found


class Handoff(Queues):
    """In a drafter's process: a queue and a thread for each target."""

    def __init__(
        self, course: Course, prepared: Prepared, config: Config, links: Links, features: torch.Tensor
    ) -> None:
        """features: an empty tensor [0, K*H] of the kind and on the device that hidden states are wanted."""
        super().__init__(1, links.targets, config)
        self._course, self._prepared, self._config, self._links = course, prepared, config, links
        self._like = features
        self._peaks_bytes: Dict[int, int] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(target,), name=f"from-target-{target}", daemon=True)
            for target in range(links.targets)
        ]

    def target_peaks_mib(self) -> Optional[List[float]]:
        known = [self._peaks_bytes.get(target) for target in range(self._links.targets)]
        return [float(peak) / 2**20 for peak in known if peak] or None

    def _run(self, target: int) -> None:
        torch.set_num_threads(self._config.threads)
        queue = self.queues[0][target]
        try:
            with _stream_beside(self._like.device):
                for planned in self._offered(target):
                    shape = (*planned.tokens.shape, self._like.shape[-1])
                    size_bytes = planned.size_bytes + math.prod(shape) * self._like.element_size()
                    try:
                        queue.reserve(size_bytes)
                    except Closed:
                        self._links.give_answer(target, NO_MORE)
                        return
                    batch = dataclasses.replace(planned, features=self._like.new_empty(shape))
                    self._links.give_answer(target, SEND)
                    self._links.receive(target, batch.features)
                    self._links.finish_device()
                    _used_by_the_drafter(batch, self._like.device)
                    with contextlib.suppress(Closed):  # then the next offer is declined
                        queue.fill(batch, size_bytes)
        except BaseException as error:
            for each in self.all_queues():
                each.close(error)
        else:
            queue.close()

    def _offered(self, target: int) -> Iterator[Batch]:
        """Batches, without hidden states, whose hidden states the target has ready."""
        for number, step, replica in self._course.all():
            if replica != self._links.rank.index or self._course.target(number) != target:
                continue
            planned = plan_batch(number, self._prepared, self._config, step).to(self._like.device)
            offered, peak = self._links.await_offer(target, OFFER)
            if offered == END:
                return
            if offered != number:
                raise RuntimeError(f"target {target} offers batch {offered} where {number} is due")
            self._peaks_bytes[target] = peak
            yield planned


@contextlib.contextmanager
def _stream_beside(device: torch.device) -> Iterator[None]:
    """What arrives must not wait for what the drafter computes."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_device(device)
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def _used_by_the_drafter(batch: Batch, device: torch.device) -> None:
    """Its memory belongs to this thread's stream, and may not be used again before the drafter's is done with it."""
    if device.type != "cuda":
        return
    for part in vars(batch).values():
        if isinstance(part, torch.Tensor):
            part.record_stream(torch.cuda.default_stream(device))
