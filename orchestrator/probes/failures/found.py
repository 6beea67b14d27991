"""A failure that a log tells of, as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.probes.spans import OWN_WORDS, Located, Span, Value


@dataclass(frozen=True)
class Telling(Located):
    """One of the rows that tell of a failure."""

    line: str
    rank: int | None
    pid: int | None
    values: Mapping[str, Value]


@dataclass(frozen=True)
class FailureFound(Located):
    kind: str
    title: str = field(metadata=OWN_WORDS)
    role: str = field(metadata=OWN_WORDS)
    remedy: str = field(metadata=OWN_WORDS)
    line: str
    """The row that says it, as printed."""
    values: Mapping[str, Value]
    """By name; units are in the names."""
    ranks: tuple[int, ...]
    """Those that told of it."""
    count: int = field(metadata=OWN_WORDS)
    """How many different tellings."""
    tellings: tuple[Telling, ...]
    """Where there is more than one."""
    is_first: bool = field(metadata=OWN_WORDS)
    """The launcher's table says that its rank failed first."""
    silent_ranks: tuple[int, ...] = field(metadata=OWN_WORDS)
    """Of a collective operation that timed out: those that did not tell of it, as far as ranks are known. Suspects."""
    survived: bool = field(metadata=OWN_WORDS)
    """The training made progress after it."""
    traceback: int | None = field(metadata=OWN_WORDS)
    """Which of the log's tracebacks is its own."""

    @property
    def span(self) -> Span:
        return self.spans["kind"]
