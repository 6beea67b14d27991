"""What a captured text says is wrong: the kind, the words that say so, what they name, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.probes.spans import OWN_WORDS, Located, Piece, Span, Value

SAID_CHARACTERS = 400


@dataclass(frozen=True)
class Finding(Located):
    kind: str
    said: str
    """The words that it was read from."""
    named: Mapping[str, Value] = field(default_factory=dict)
    """What those words name: a bus, a version, an exit code."""
    way_out: str = field(default="", metadata=OWN_WORDS)


def finding_at(
    line: Piece, kind: str, way_out: str = "", named: Mapping[str, Value] | None = None, at: Span | None = None
) -> Finding:
    """at: the part of the line that decided the kind."""
    said = line.cut(0, SAID_CHARACTERS)
    return Finding(kind, said.text, named or {}, way_out, spans={"kind": at or said.span, "said": said.span})
