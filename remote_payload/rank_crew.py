"""The drafter replica of one process, and how it keeps step with those of the others.

Rule: every drafter says how its share of a step went before any of them averages, so that what goes wrong in one is
known to all: the leader saves what there is to save and reports it, and nobody waits for a gradient that never comes.
The loop sees the same methods as of a crew of threads.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, List, Optional, Tuple, Type

import torch
from feed import Course
from links import Links, lost_peer
from optimise import NotANumber
from progress import Progress
from sealing import EagerFallback, Recompiled, Seal
from stopping import StopRequest
from workers import Crew, Learned, Replica, Word, compare_weights, weight_hashes


class FailedElsewhere(RuntimeError):
    """Another drafter has failed, and has said so."""


PASSED_ON: Dict[str, Type[RuntimeError]] = {kind.__name__: kind for kind in (NotANumber, EagerFallback, Recompiled)}
"""What the loop has an answer to, whoever it happened to."""


@dataclasses.dataclass(frozen=True)
class Told:
    """By each drafter after its share of a step."""

    learned: Optional[Learned]
    """Without its tensors. None: it failed."""
    error: Optional[Tuple[str, str]]
    """Kind and text."""
    stop_asked: bool


class RankCrew(Crew):
    def __init__(self, replica: Replica, links: Links, threads: int, stop: StopRequest) -> None:
        super().__init__([replica], threads)
        self.leads = links.rank.leads
        self._links, self._stop = links, stop
        self._stop_asked = False

    def learn(self, step: int, course: Course, seal: Seal) -> List[Learned]:
        """Raises the same as with threads; in the drafters it did not happen to, with FailedElsewhere as its cause."""
        own: Optional[Learned] = None
        failure: Optional[Exception] = None
        try:
            own = self.replicas[0].learn(step, course)
            own = dataclasses.replace(own, compiled=seal.look())
        except Exception as error:
            if lost_peer(error) is not None:
                raise
            failure = error
        told = self._links.gather_drafters(
            Told(
                dataclasses.replace(own, outcome=None) if own is not None and failure is None else None,
                None if failure is None else (type(failure).__name__, str(failure)),
                self._stop.asked,
            )
        )
        if failure is not None:
            raise failure
        self._stop_asked = told[0].stop_asked
        for number, one in enumerate(told):
            if one.error is not None:
                kind, text = one.error
                text = f"drafter {number}: {text}"
                raise PASSED_ON.get(kind, FailedElsewhere)(text) from FailedElsewhere(text)
        assert own is not None
        place = self._links.rank.index
        return [own if number == place else one.learned for number, one in enumerate(told)]

    def stop_asked(self, stop: StopRequest) -> bool:
        return self._stop_asked

    def gather(self, word: Word) -> List[Word]:
        return self._links.gather_drafters(word)

    @torch.no_grad()
    def average_gradients(self) -> None:
        if self._links.drafters == 1:
            return
        gradients = [parameter.grad for parameter in self.replicas[0].drafter.parameters()]
        self._links.add_up(gradients)
        for gradient in gradients:
            gradient /= self._links.drafters

    def check_equal(self, step: int) -> None:
        compare_weights(self._links.gather_drafters(weight_hashes(self.replicas[0].drafter)), step)

    def compile_in_turn(self, compile_own: Callable[[], None], progress: Progress) -> None:
        """The leader first: what it leaves in the cache serves all others, for each sees its own device as cuda:0."""
        if self.leads:
            compile_own()
        self.gather(None)
        if not self.leads:
            compile_own()
        elif self._links.drafters > 1:
            progress.phase("compiling", f"the other {self._links.drafters - 1} drafters, from the cache")
        self.gather(None)
