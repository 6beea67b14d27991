"""The failures of ssh and pct that a captured text tells of, each with its way out: kinds `ssh` and `pct`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.container import pct
from orchestrator.probes.finding import Finding, finding_at
from orchestrator.probes.spans import Located, Piece, Span, Value
from orchestrator.transport import failures
from orchestrator.transport.signs import Told

_NUMBERS = {"port", "line", "container"}
_NOBODY = {("host", "UNKNOWN"), ("port", "65535")}
"""What ssh says of a connection that went through a program of its own (ProxyCommand)."""


@dataclass(frozen=True)
class FailuresReading(Located):
    findings: tuple[Finding, ...]


def read_ssh(text: str) -> FailuresReading:
    def way_out(told: Told) -> str:
        return failures.way_out_of(told.kind, _word(told, "host"))

    return _reading(text, failures.read_ssh_failures(text), way_out)


def read_pct(text: str) -> FailuresReading:
    def way_out(told: Told) -> str:
        container, node, reason = (_word(told, name) for name in ("container", "node", "reason"))
        return pct.way_out_of(pct.PctFailure(told.kind, container, node, reason))

    return _reading(text, pct.read_pct_failures(text), way_out)


def _word(told: Told, name: str) -> str | None:
    word = told.named[name][0] if name in told.named else None
    return None if (name, word) in _NOBODY else word


def _reading(text: str, found: Sequence[Told], way_out: Callable[[Told], str]) -> FailuresReading:
    findings = []
    for told in found:
        span = Span(told.start, told.end)
        begin = text.rfind("\n", 0, told.start) + 1
        end = text.find("\n", told.end)
        line = Piece(text[begin : len(text) if end < 0 else end], begin).strip()
        if told.end - line.start > 400:
            line = Piece(text[told.start : told.end], told.start)  # a text that is one long line
        named = {name: Value(_value(name, word), Span(at, to)) for name, (word, at, to) in told.named.items()}
        if told.times > 1:
            named["times"] = Value(told.times, span)
        findings.append(finding_at(line, told.kind, way_out(told), named, span))
    return FailuresReading(tuple(findings))


def _value(name: str, word: str) -> str | int | None:
    if (name, word) in _NOBODY:
        return None
    return int(word) if name in _NUMBERS and word.isdecimal() and len(word) < 10 else word
