"""What a Python traceback tells."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.probes.spans import OWN_WORDS, Located, Span, Value


@dataclass(frozen=True)
class Frame(Located):
    file: str
    line: int
    function: str | None


@dataclass(frozen=True)
class Raised(Located):
    """One link of a chain."""

    exception: str | None
    """The line that names what was raised, with its further lines; None where the log ends before it."""
    exception_type: str | None
    frame: Frame | None
    """Where it was raised."""
    own_frame: Frame | None
    """The innermost one that is neither a library's nor Python's."""
    after: str | None = field(default=None, metadata=OWN_WORDS)
    """What stands between it and the link before."""


@dataclass(frozen=True)
class Traceback(Located):
    text: str
    """As printed, chained ones first, without control sequences."""
    exception: str | None
    """The line that names what was raised last: `ValueError: too long`. None where the log ends before it."""
    exception_type: str | None
    ignored: bool = field(metadata=OWN_WORDS)
    """Python said "Exception ignored in": the program went on."""
    links: tuple[Raised, ...] = ()
    """In the order in which they were printed."""
    cause: int = field(default=0, metadata=OWN_WORDS)
    """Which link the others follow from."""
    rank: int | None = None
    thread: Value | None = None
    is_whole: bool = field(default=True, metadata=OWN_WORDS)
    """False: its begin or its exception is not there."""
    is_mixed: bool = field(default=False, metadata=OWN_WORDS)
    """Several writers printed at once: no row of its stack may be believed to be of the same stack as the next."""
    is_warned: bool = field(default=False, metadata=OWN_WORDS)
    """A logger told it as no more than a warning."""

    @property
    def span(self) -> Span:
        return self.spans["text"]

    @property
    def root(self) -> Raised:
        return self.links[self.cause]
