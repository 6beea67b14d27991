"""`when:` of a step: `${name}`, `not ${name}`, `${name} >= 3`, joined by `and`. Nothing is ever evaluated as code.

Rule: pure.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.playbook.variables import text_of

_TERM = re.compile(
    r"(?P<no>not\s+)?\$\{\s*(?P<name>[A-Za-z0-9_]+)\s*\}(\s*(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>\S(.*\S)?))?"
)
_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": lambda a, b: float(a) < float(b),  # type: ignore[arg-type]
    "<=": lambda a, b: float(a) <= float(b),  # type: ignore[arg-type]
    ">": lambda a, b: float(a) > float(b),  # type: ignore[arg-type]
    ">=": lambda a, b: float(a) >= float(b),  # type: ignore[arg-type]
}
HELP = "write `${name}`, `not ${name}` or `${name} >= 3`; several joined by `and`"


@dataclass(frozen=True)
class Term:
    name: str
    wanted: bool
    """False: it begins with `not`."""
    comparison: str | None
    value: str | None


@dataclass(frozen=True)
class Condition:
    text: str
    terms: tuple[Term, ...]

    def holds(self, known: Mapping[str, object]) -> bool:
        """What is not known compares with nothing: then it does not hold."""
        return all(_holds(term, known) for term in self.terms)


def parse_condition(text: str) -> Condition:
    """Raises ValueError."""
    terms = []
    for part in re.split(r"\s+and\s+", text.strip()):
        match = _TERM.fullmatch(part)
        if match is None:
            raise ValueError(f"`{part}` is not a condition")
        comparison, value = match["op"], match["value"]
        if comparison in ("<", "<=", ">", ">=") and not _is_number(value):
            raise ValueError(f"`{comparison}` compares numbers, and `{value}` is not a number")
        terms.append(Term(match["name"], not match["no"], comparison, value))
    return Condition(text, tuple(terms))


def _holds(term: Term, known: Mapping[str, object]) -> bool:
    value = known.get(term.name)
    if term.comparison is None or term.value is None:
        return (value not in (None, False, "", 0, "false", "-")) is term.wanted
    if value is None:
        return False
    if _is_number(text_of(value)) and _is_number(term.value):
        found = _OPERATORS[term.comparison](float(text_of(value)), float(term.value))
    elif term.comparison in ("==", "!="):
        found = _OPERATORS[term.comparison](text_of(value), term.value.strip("'\""))
    else:
        return False
    return found is term.wanted


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", text) is not None
