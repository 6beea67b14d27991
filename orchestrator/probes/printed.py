"""What one printed line of a training says of its progress: step, loss, rate, time left.

Rule: a number counts only beside a name or a unit that says what it is. A line that says nothing gives None.
The tables at the top are what is understood; widen them, with the line that was met as a test case.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

from orchestrator.probes.spans import Located, Span

MAX_LINE_CHARS = 1024
"""Of a longer line only the beginning is read."""

TOKENS, SAMPLES, ITERATIONS = "tok", "samples", "it"

# All of this is matched against lower case.
# What is counted, and how it is written. Earlier ones say more about a training.
COUNTED: dict[str, str] = {
    TOKENS: r"tokens?|toks?",
    SAMPLES: r"samples?|sequences?|seqs?|examples?|images?|imgs?",
    ITERATIONS: r"iterations?|iters?|its?|steps?|batch(?:es)?",
}
# Names before the number: `tps: 10,050`. Units in front of it (`tok/s 21500`) come from COUNTED.
NAMED_RATES: tuple[tuple[str, str, bool], ...] = (  # names, what is counted, of one device
    (r"(?:train_)?tokens_per_s(?:ec(?:ond)?)?", TOKENS, False),
    (r"tps(?=:\s{0,12}[\d,]{1,20}\s{1,12}tflops)", TOKENS, True),
    (r"tps", TOKENS, False),
    (r"tgs", TOKENS, True),
    (r"(?:train_)?(?:samples|examples|sequences)_per_s(?:ec(?:ond)?)?", SAMPLES, False),
    (r"currsamplespersec", SAMPLES, False),
    (r"runningavgsamplespersec", SAMPLES, False),
    (r"(?:train_)?(?:steps|iters|iterations|batches)_per_s(?:ec(?:ond)?)?", ITERATIONS, False),
)
NAMED_TIMES = (
    r"elapsed time per iteration",
    r"(?:iter(?:ation)?|step|batch)[ _]time",
    r"(?:seconds|s|sec|ms)_per_(?:step|it|iter|iteration)",
    r"time[ _]per[ _](?:step|iteration)",
    r"dt",
    r"(?<=, )time",
)
ABSURD = 1e15
"""No rate is as high: a number that is says something else."""
STEP_NAMES = ("global_step", "global step", "step", "iteration", "iter")
"""What they mean most first."""
LOSS_NAMES = (
    r"(?:train(?:ing)?[/_ ]|lm[_ ])loss",
    r"loss[/_ ]train(?:ing)?(?: \(\w{1,12}\))?",
    r"(?<!val )(?<!eval )(?<!valid )(?<!validation )(?<!test )loss",
)
SPEED_WORDS = {"speed", "throughput", "rate", "avg", "at", "training"}
OTHER_BARS = re.compile(
    r"load|map|filter|download|fetch|tokeni|eval|valid|test|pack|sav|upload|sanity|predict|convert|resolv|shard|cach"
    r"|generat|prepar|collect"
)
"""What a bar that is not the training's begins with."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?"
_GAP = r"\s{0,12}"
_AFTER = r"(?![\w]|[.,:/-]\d)"
_BEFORE = r"(?<![\w./-])"
_SEPARATOR = rf"['\"]?{_GAP}(?:\((?P<name_unit>ms|s)\))?{_GAP}[:=]?{_GAP}"
_A_SECOND = rf"(?:{_GAP}/{_GAP}|\s{{1,12}}per\s{{1,12}})s(?:ec(?:ond)?s?)?"
_OF_A_DEVICE = rf"(?P<device>{_GAP}/{_GAP}(?:gpu|device|rank|chip))?"
_ANY_COUNTED = "|".join(COUNTED.values())
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


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


_BAR = re.compile(
    rf"(?:\d{{1,3}}%\|[^|]*\|{_GAP}(?P<step>\d{{1,15}})/(?P<total>\d{{1,15}})|(?<![\w.])(?P<bare>\d{{1,15}})it)"
    rf"{_GAP}\[[\d:]+(?:<(?P<left>[\d:]{{1,12}}|\?))?"
    rf"(?:,{_GAP}(?:\?|(?P<rate>{_NUMBER})){_GAP}(?P<scale>[kmg]?)(?P<unit>[a-z]+/s|s/[a-z]+))?"
)
_BEFORE_BAR = re.compile(r"(.*?)\d{1,3}%\|")
_UNIT_RATE = re.compile(
    rf"(?:(?<!\w)(?P<before>[a-z_]\w*)['\"]?{_GAP}[:=]?{_GAP})?(?<![\w.,-])(?P<value>{_NUMBER}){_GAP}(?P<scale>[kmg]?)"
    rf"\s?(?P<counted>{_ANY_COUNTED}){_A_SECOND}{_OF_A_DEVICE}\b(?!{_GAP}[:=])(?P<follows>\s{{1,12}}{_NUMBER})?"
)
_UNIT_TIME = re.compile(
    rf"(?<![\w.,-])(?P<value>{_NUMBER}){_GAP}(?P<milli>m?)s(?:ec(?:ond)?s?)?"
    rf"(?:{_GAP}/{_GAP}|\s{{1,12}}per\s{{1,12}})(?:{COUNTED[ITERATIONS]})\b"
)
_NAMED_BY_UNIT = re.compile(
    rf"{_BEFORE}(?P<counted>{_ANY_COUNTED}){_A_SECOND}{_OF_A_DEVICE}{_SEPARATOR}"
    rf"(?P<value>{_NUMBER})(?P<scale>[km]?){_AFTER}"
)
_NAMED = tuple(
    (re.compile(rf"{_BEFORE}(?:{names}){_SEPARATOR}(?P<value>{_NUMBER})(?P<scale>[km]?){_AFTER}"), counted, of_one)
    for names, counted, of_one in NAMED_RATES
)
_NAMED_TIME = re.compile(
    rf"{_BEFORE}(?P<name>{'|'.join(NAMED_TIMES)}){_SEPARATOR}(?P<value>{_NUMBER}){_GAP}(?P<unit>ms|s)?{_AFTER}"
)
_STEP = re.compile(
    rf"(?<![\w.-])(?P<name>{'|'.join(STEP_NAMES)})s?['\"]?{_GAP}[:=#]?{_GAP}"
    rf"(?P<step>\d{{1,15}})(?:{_GAP}(?:/|of){_GAP}(?P<total>\d{{1,15}}))?{_AFTER}(?!%)"
)
_LOSS = re.compile(
    rf"{_BEFORE}(?:{'|'.join(LOSS_NAMES)})['\"]?(?: \(\w{{1,12}}\))?{_GAP}[:=]?{_GAP}"
    rf"(?P<value>-?{_NUMBER}|-?inf(?:inity)?|nan){_AFTER}"
)
_ONLY_A_STEP = re.compile(
    rf"(?:[\[\]()\d\s:.,/|#-]|\b(?:info|debug|rank\d{{0,6}}|epoch)\b)*"
    rf"(?:global[ _]?)?(?:step|iter(?:ation)?){_GAP}[:=#]?{_GAP}\d+\W*"  # `steps = 750` is a setting
)
_ETA = re.compile(
    rf"(?<!\w)(?:eta|remaining|time left)\b['\"]?{_GAP}[:=]?{_GAP}(?:(?P<days>\d{{1,6}}) days?, ?)?"
    r"(?:(?P<clock>\d{1,6}:\d\d(?::\d\d)?)"
    rf"|(?P<words>(?:\d{{1,9}}(?:\.\d+)?{_GAP}(?:hours?|h|minutes?|min|m|seconds?|sec|s)\b,?{_GAP}){{1,3}}))"
)
# `Epoch: [0][511/1736]`: epoch, step within it.
_EPOCH_STEP = re.compile(
    r"\bepoch:? {0,3}\[ {0,6}\d{1,6}(?:/\d{1,6})?\] {0,3}\[ {0,8}(?P<step>\d{1,15})/(?P<total>\d{1,15})\]"
)
_DURATION_WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([hms])")
# `[... timer.py] 0/3, RunningAvgSamplesPerSec=...`: epoch/step.
_DEEPSPEED = re.compile(r"\] \d+/(?P<step>\d{1,15}), runningavgsamplespersec=")
# `    3 7.34 s run, 11.8750 loss, ...`
_TINYGRAD = re.compile(rf"\s*(?P<step>\d{{1,15}}) +(?P<value>{_NUMBER}) s run, +(?P<loss>{_NUMBER}|nan|inf) loss,")
# A line without any of these says nothing; those without some need not be searched for these.
_SAYS_STEP, _SAYS_LOSS, _SAYS_BAR = ("step", "iter"), ("loss",), ("%|", "it [", "it[")
_SAYS_UNIT = ("/s", "/ s", "per s", "s/", "s /", "s per")
_SAYS_NAMED = ("_per_", "tps", "tgs", "persec")
_SAYS_TIME = ("time", "_per_", "dt")
_SAYS_ETA = ("eta", "remaining", "time left")


def read_line(line: str) -> Reading | None:
    """`line` holds no control sequences and no line ends. None: it tells of no progress."""
    line = line[:MAX_LINE_CHARS]
    lower = line.lower()
    if len(lower) != len(line):  # a few letters change their length
        lower = "".join([small if len(small := letter.lower()) == 1 else letter for letter in line])
    has_bar = _has(lower, _SAYS_BAR)
    if not (has_bar or _has(lower, _SAYS_STEP + _SAYS_LOSS + _SAYS_UNIT + _SAYS_NAMED)):
        return None
    if has_bar and _is_other_bar(lower):
        return None
    special = _special(line, lower)
    if special is not None:
        return special
    bar, rest = _bar(line, lower) if has_bar else (None, lower)
    reading = _measurements(line, rest)
    if bar is None or reading is None:
        return reading if bar is None else bar
    named = reading.step is not None
    return Reading(
        step=reading.step if named else bar.step,
        total_steps=reading.total_steps if named else bar.total_steps,
        loss=reading.loss,
        rates=_best_first([*reading.rates, *bar.rates]),
        eta_s=reading.eta_s if reading.eta_s is not None else bar.eta_s,
        is_bar=True,
        spans={**({"eta_s": bar.spans["eta_s"]} if named and "eta_s" in bar.spans else bar.spans), **reading.spans},
    )


def _has(lower: str, words: tuple[str, ...]) -> bool:
    return any(word in lower for word in words)


def _is_other_bar(lower: str) -> bool:
    found = _BEFORE_BAR.match(lower)
    return found is not None and OTHER_BARS.search(found[1]) is not None and _LOSS.search(found[1]) is None


def _special(line: str, lower: str) -> Reading | None:
    if run := _TINYGRAD.match(lower):
        time = _rate_of_time(run["value"], 1.0, f"{run['value']} s/it", _span(run, "value"))
        spans = {"step": _span(run, "step"), "loss": _span(run, "loss")}
        return Reading(_whole(run["step"]), None, _float(run["loss"]), (time,) if time else (), spans=spans)
    if timer := _DEEPSPEED.search(lower):
        reading = _measurements(line, " " * timer.end("step") + lower[timer.end("step") :]) or Reading()
        return replace(reading, step=_whole(timer["step"]), spans={**reading.spans, "step": _span(timer, "step")})
    return None


def _bar(line: str, lower: str) -> tuple[Reading | None, str]:
    """The last state of a bar in the line, and the line with its bars blanked."""
    bars = list(_BAR.finditer(lower))
    if not bars:
        return None, lower
    found = bars[-1]
    unit = found["unit"] or ""
    if line[found.start("unit") : found.end("unit")].endswith("B/s"):
        return None, ""  # bytes: something is downloaded
    rate = None
    if found["rate"]:
        printed = line[found.start("rate") : found.end("unit")]
        place = Span(found.start("rate"), found.end("unit"))
        if unit.startswith("s/"):
            rate = _rate_of_time(found["rate"], 1.0, printed, place)
        else:
            rate = _rate(found["rate"], found["scale"], _counted(unit[:-2]), False, printed, place)
    clock = found["left"]
    step = "step" if found["step"] else "bare"
    reading = Reading(
        step=_whole(found["step"] or found["bare"]),
        total_steps=_whole(found["total"]),
        rates=(rate,) if rate else (),
        eta_s=_clock_s(clock) if clock and clock != "?" else None,
        is_bar=True,
        spans={
            "step": _span(found, step),
            **({"total_steps": _span(found, "total")} if found["total"] else {}),
            **({"eta_s": _span(found, "left")} if clock and clock != "?" else {}),
        },
    )
    return reading, _blanked(lower, bars)


def _measurements(line: str, lower: str) -> Reading | None:
    """What was understood is blanked before the next is looked for: `step 12 tokens/s 500` are not 12 tokens/s."""
    spans: dict[str, Span] = {}
    step, total, rest = _step(lower, spans) if _has(lower, (*_SAYS_STEP, "epoch")) else (None, None, lower)
    loss = None
    if "loss" in rest and (found := _LOSS.search(rest)):
        loss = _float(found["value"])
        spans["loss"] = _span(found, "value")
        rest = _blanked(rest, [found])
    rates: list[Rate] = []
    if _has(rest, _SAYS_UNIT):
        rates, rest = _unit_rates(line, rest)
    rates += _named_rates(line, rest)
    eta_s = _eta_s(lower, spans) if _has(lower, _SAYS_ETA) else None
    if total is None and loss is None and not rates and (step is None or not _ONLY_A_STEP.fullmatch(lower)):
        return None  # nothing, or a sentence that speaks of a step
    return Reading(step, total, loss, _best_first(rates), eta_s, spans=spans)


def _step(lower: str, spans: dict[str, Span]) -> tuple[int | None, int | None, str]:
    found = list(_STEP.finditer(lower))
    if not found and "epoch" in lower:
        found = list(_EPOCH_STEP.finditer(lower))
        if found:
            spans.update(step=_span(found[0], "step"), total_steps=_span(found[0], "total"))
            return _whole(found[0]["step"]), _whole(found[0]["total"]), _blanked(lower, found)
    if not found:
        return None, None, lower
    best = min(found, key=lambda match: STEP_NAMES.index(match["name"]))
    spans["step"] = _span(best, "step")
    if best["total"]:
        spans["total_steps"] = _span(best, "total")
    return _whole(best["step"]), _whole(best["total"]), _blanked(lower, found)


def _unit_rates(line: str, lower: str) -> tuple[list[Rate], str]:
    rates: list[Rate | None] = []
    taken = []
    for found in _UNIT_RATE.finditer(lower):
        before = found["before"]
        if found["follows"] and before and before not in SPEED_WORDS:
            continue  # `lr 0.1 tok/s 500`: the number in front belongs to the name before it
        place = Span(found.start("value"), found.start("follows") if found["follows"] else found.end())
        of_one, printed = bool(found["device"]), place.of(line)
        rates.append(_rate(found["value"], found["scale"], _counted(found["counted"]), of_one, printed, place))
        taken.append(found)
    for found in _UNIT_TIME.finditer(lower):
        place = Span(*found.span())
        rates.append(_rate_of_time(found["value"], 1e-3 if found["milli"] else 1.0, place.of(line), place))
        taken.append(found)
    return [rate for rate in rates if rate is not None], _blanked(lower, taken)


def _named_rates(line: str, lower: str) -> list[Rate]:
    rates: list[Rate | None] = []
    if _has(lower, _SAYS_UNIT):
        for found in _NAMED_BY_UNIT.finditer(lower):
            place, of_one = Span(*found.span()), bool(found["device"])
            counted = _counted(found["counted"])
            rates.append(_rate(found["value"], found["scale"], counted, of_one, place.of(line), place))
    if _has(lower, _SAYS_NAMED):
        for pattern, counted, of_one in _NAMED:
            if named := pattern.search(lower):
                place = Span(*named.span())
                rates.append(_rate(named["value"], named["scale"], counted, of_one, place.of(line), place))
                lower = _blanked(lower, [named])
    if _has(lower, _SAYS_TIME) and (took := _NAMED_TIME.search(lower)):
        unit = took["unit"] or took["name_unit"] or _unit_in_name(took["name"])
        if unit:
            place = Span(*took.span())
            rates.append(_rate_of_time(took["value"], 1e-3 if unit == "ms" else 1.0, place.of(line), place))
    return [rate for rate in rates if rate is not None]


def _unit_in_name(name: str) -> str:
    """`ms_per_step`, `seconds_per_iteration`: the name says it; others must say it behind the number."""
    first = name.partition("_per_")[0]
    return "ms" if first == "ms" else "s" if first in ("s", "sec", "seconds") else ""


def _counted(word: str) -> str:
    return next((what for what, words in COUNTED.items() if re.fullmatch(words, word)), ITERATIONS)


def _best_first(rates: list[Rate]) -> tuple[Rate, ...]:
    """One of each kind, in the order of COUNTED."""
    first: dict[str, Rate] = {}
    for rate in rates:
        first.setdefault(rate.counted, rate)
    return tuple(first[kind] for kind in COUNTED if kind in first)


def _rate(value: str, scale: str | None, counted: str, per_device: bool, printed: str, place: Span) -> Rate | None:
    number = _float(value)
    if number is None or not number < ABSURD:
        return None
    return Rate(number * _SCALES[scale or ""], counted, per_device, " ".join(printed.split()), place)


def _rate_of_time(value: str, unit_s: float, printed: str, place: Span) -> Rate | None:
    """None for a time of 0, which is no time."""
    number = _float(value)
    if number is None or not math.isfinite(number) or number * unit_s < 1e-9:
        return None
    return Rate(1 / (number * unit_s), ITERATIONS, False, " ".join(printed.split()), place)


def _eta_s(lower: str, spans: dict[str, Span]) -> float | None:
    found = _ETA.search(lower)
    if found is None:
        return None
    spans["eta_s"] = Span(*found.span())
    days = int(found["days"]) * 86400.0 if found["days"] else 0.0
    if found["clock"]:
        return days + _clock_s(found["clock"])
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    return days + sum(float(number) * units[unit] for number, unit in _DURATION_WORD.findall(found["words"]))


def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds


def _blanked(text: str, found: list[re.Match[str]]) -> str:
    """A comma in its place, so that what stood around it does not come together; positions stay."""
    for match in found:
        start, end = match.span()
        text = text[:start] + ",".ljust(end - start) + text[end:]
    return text


def _span(found: re.Match[str], group: str) -> Span:
    return Span(*found.span(group))


def _float(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except (ValueError, OverflowError):
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text else None
