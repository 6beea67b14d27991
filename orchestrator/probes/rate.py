"""How fast a training is and how far, as one printed line or status.json says it.

Rule: facts only. Whoever has them need not import `printed`, whose patterns take longer to compile than all of this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.probes.spans import Located, Span

TOKENS, SAMPLES, ITERATIONS = "tok", "samples", "it"
SAYS_MOST_FIRST = (TOKENS, SAMPLES, ITERATIONS)


@dataclass(frozen=True)
class Rate:
    per_s: float
    counted: str
    """tok, samples or it."""
    per_device: bool = False
    printed: str = ""
    """As it was printed (`2.88s/it`); empty: found from how the steps advance."""
    place: Span | None = field(default=None, compare=False, repr=False)
    """Of `printed`, in the line."""


@dataclass(frozen=True)
class Reading(Located):
    """Its spans are in the line."""

    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    """NaN and infinities too: they are news."""
    rates: tuple[Rate, ...] = ()
    """What says most first; one of each kind."""
    eta_s: float | None = None
    is_bar: bool = False
    """From a progress bar: a line of metrics knows better."""
