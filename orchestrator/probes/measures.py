"""What else a line of metrics names: memory, FLOPS, learning rate, ...: the number, its unit as printed, its place.

Rule: as in printed.py: a number counts only beside its name or its unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from orchestrator.probes.rows import Row
from orchestrator.probes.spans import Located
from orchestrator.probes.text import lowered

MAX_CHARS = 1024
NEAR_CHARS = 48
"""So far before its word a number begins at most."""
_NUMBER = (
    r"(?P<value>-?(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,30})(?:\.\d{0,30})?(?:e[-+]?\d{1,4})?|nan"
    r"|-?inf(?:inity)?|none)(?![\w.]\d)"
)
_IS = r"['\"]?\s{0,8}[:=]?\s{0,8}['\"]?"


@dataclass(frozen=True)
class Measured(Located):
    value: float | None
    """None: printed as not measured."""
    unit: str | None
    """As printed."""


@dataclass(frozen=True)
class _Sought:
    name: str
    word: str
    """In lower case in every line that it is in."""
    pattern: str
    zero_is_unknown: bool = False


def _sought(name: str, word: str, pattern: str, *, zero_is_unknown: bool = False) -> _Sought:
    return _Sought(name, word, pattern, zero_is_unknown)


_SOUGHT = (
    _sought(
        "iteration",
        "iter",
        r"(?<![\w.])iter(?:ation)?s?['\"]?\s{0,8}[:=#]?\s{0,8}(?P<value>\d{1,15})(?![\d.]|\s{0,3}ms)",
    ),
    _sought("epoch", "epoch", rf"(?<!\w)epoch{_IS}\[?{_NUMBER}"),
    _sought("learning_rate", "learning", rf"(?<!\w)learning[_ ]rate{_IS}{_NUMBER}"),
    _sought("learning_rate", "lr", rf"(?<!\w)lr{_IS}{_NUMBER}|{_NUMBER.replace('value', 'value2')} lr,"),
    _sought(
        "grad_norm",
        "norm",
        rf"(?<!\w)(?:grad|gradient)[_ ]norm{_IS}{_NUMBER}"
        rf"|(?<!\w)gnorm{_IS}{_NUMBER.replace('value', 'value2')}"
        rf"|\bnorm{_IS}{_NUMBER.replace('value', 'value3')}",
    ),
    _sought("loss_scale", "loss", rf"(?<!\w)loss[_ ]scale{_IS}{_NUMBER}"),
    _sought(
        "val_loss", "val", rf"(?<!\w)(?:val(?:id(?:ation)?)?|eval)[_ /]?(?:loss)?(?: \([\w ]{{1,20}}\))?{_IS}{_NUMBER}"
    ),
    _sought(
        "memory",
        "mem",
        rf"(?<![\w])(?:peak[ _]|gpu[ _]|max[ _])?mem(?:ory)?{_IS}{_NUMBER}\s?(?P<unit>[kmgt]i?b)",
        zero_is_unknown=True,
    ),
    _sought(
        "memory_share",
        "mem",
        rf"(?<!\w)mem(?:ory)?{_IS}[\d.]{{1,12}}\s?[kmgt]i?b\({_NUMBER}(?P<unit>%)",
        zero_is_unknown=True,
    ),
    _sought("memory", "memalloc", rf"(?<!x)memallocated{_IS}{_NUMBER}\s?(?P<unit>[kmgt]i?b)"),
    _sought("memory_peak", "maxmem", rf"maxmemallocated{_IS}{_NUMBER}\s?(?P<unit>[kmgt]i?b)"),
    _sought("memory", "gb", rf"[,|] {{1,4}}{_NUMBER} (?P<unit>gb)(?: used)?(?= ?[,:|]|\s*$)"),
    _sought(
        "tflops",
        "tflops",
        rf"(?<!\w)tflops{_IS}{_NUMBER}|(?<![\w.]){_NUMBER.replace('value', 'value2')}\s?(?P<unit>tflops|tflop/s)\b",
    ),
    _sought("tflops", "tflop/s/gpu", rf"\(tflop/s/gpu\){_IS}{_NUMBER}"),
    _sought("gflops", "gflops", rf"(?<![\w.]){_NUMBER}\s?(?P<unit>gflops)\b"),
    _sought("mfu", "mfu", rf"(?<!\w)mfu{_IS}{_NUMBER}(?P<unit>%)?"),
    _sought("mfu", " mfu", rf"(?<![\w.]){_NUMBER}(?P<unit>%) (?:\w{{2,5}} )?mfu\b"),
    _sought("samples_per_s", "samples/s", rf"(?<!\w)samples/s(?:ec)?{_IS}{_NUMBER}"),
    _sought("running_samples_per_s", "runningavg", rf"runningavgsamplespersec{_IS}{_NUMBER}"),
    _sought("current_samples_per_s", "currsamples", rf"currsamplespersec{_IS}{_NUMBER}"),
    _sought("skipped_iterations", "skipped", rf"skipped iterations{_IS}{_NUMBER}"),
    _sought("nan_iterations", "nan it", rf"nan iterations{_IS}{_NUMBER}"),
    _sought("consumed_samples", "consumed", rf"consumed samples{_IS}{_NUMBER}"),
    _sought("consumed_tokens", "consumed", rf"consumed tokens{_IS}{_NUMBER}"),
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def measured_in(row: Row) -> Mapping[str, Measured]:
    """By name; of a name that is there twice the first."""
    text = row.text[:MAX_CHARS]
    lower = lowered(text)
    found: dict[str, Measured] = {}
    for sought in _SOUGHT:
        if sought.name in found or sought.word not in lower:
            continue
        match = _compiled(sought.pattern).search(lower, max(0, lower.index(sought.word) - NEAR_CHARS))
        if match is None:
            continue
        groups = match.groupdict()
        name = next(group for group in ("value", "value2", "value3") if groups.get(group) is not None)
        value = _number(groups[name] or "")
        if value == 0 and sought.zero_is_unknown:
            value = None
        spans = {"value": row.span(*match.span(name))}
        unit = None
        if groups.get("unit"):
            spans["unit"] = row.span(*match.span("unit"))
            unit = text[slice(*match.span("unit"))]
        found[sought.name] = Measured(value, unit, spans=spans)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
