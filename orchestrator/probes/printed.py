"""What one printed line of a training says of its progress: step, loss, rate, time left.

Rule: a number counts only beside a name or a unit that says what it is. A line that says nothing gives None.
The tables at the top are what is understood; widen them, with the line that was met as a test case.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from orchestrator.probes import printed_words as words
from orchestrator.probes.rate import ITERATIONS, SAMPLES, SAYS_MOST_FIRST, Rate, Reading
from orchestrator.probes.spans import Span
from orchestrator.probes.text import lowered

MAX_LINE_CHARS = 1024
"""Of a longer line only the beginning is read."""


def read_line(line: str) -> Reading | None:
    """`line` holds no control sequences and no line ends. None: it tells of no progress."""
    line = line[:MAX_LINE_CHARS]
    lower = lowered(line)
    if "m" in lower and "[" in lower:
        lower = words.LOST_COLOUR.sub(lambda found: " " * len(found[0]), lower)  # pasted without its ESC
    has_bar = _has(lower, words.SAYS_BAR)
    if not (has_bar or _has(lower, words.SAYS_STEP + words.SAYS_LOSS + words.SAYS_UNIT + words.SAYS_NAMED)):
        return None
    if has_bar and _is_other_bar(lower):
        return None
    if "throughput" in lower and words.OTHER_RATES.search(lower):
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


def _has(lower: str, sought: tuple[str, ...]) -> bool:
    return any(word in lower for word in sought)


def _is_other_bar(lower: str) -> bool:
    found = words.BEFORE_BAR.match(lower)
    return found is not None and words.OTHER_BARS.search(found[1]) is not None and words.LOSS.search(found[1]) is None


def _special(line: str, lower: str) -> Reading | None:
    if run := words.TINYGRAD.match(lower):
        place = Span(run.start("value"), run.end("value") + len(" s run"))
        time = _rate_of_time(run["value"], 1.0, place.of(line), place)
        spans = {"step": _span(run, "step"), "loss": _span(run, "loss")}
        return Reading(_whole(run["step"]), None, _float(run["loss"]), (time,) if time else (), spans=spans)
    if "|| timer" in lower and (row := words.YOLACT.match(lower)):
        place = _span(row, "value")
        time = _rate_of_time(row["value"], 1.0, place.of(line), place)
        spans = {"step": _span(row, "step"), "loss": _span(row, "loss")}
        eta_s = eta_s_of(lower, spans)
        return Reading(_whole(row["step"]), None, _float(row["loss"]), (time,) if time else (), eta_s, spans=spans)
    if "avg" in lower and (row := words.DARKNET.match(lower)):
        place = Span(row.start("value"), row.end("value") + len(" seconds"))
        time = _rate_of_time(row["value"], 1.0, place.of(line), place)
        spans = {"step": _span(row, "step"), "loss": _span(row, "loss")}
        return Reading(_whole(row["step"]), None, _float(row["loss"]), (time,) if time else (), spans=spans)
    if timer := words.DEEPSPEED.search(lower):
        reading = _measurements(line, " " * timer.end("step") + lower[timer.end("step") :]) or Reading()
        return replace(reading, step=_whole(timer["step"]), spans={**reading.spans, "step": _span(timer, "step")})
    return None


def _bar(line: str, lower: str) -> tuple[Reading | None, str]:
    """The last state of a bar in the line, and the line with its bars blanked."""
    bars = list(words.BAR.finditer(lower))
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
        if unit in ("s/epoch", "epoch/s"):
            rate = None  # it counts epochs
        elif unit.startswith("s/"):
            rate = _rate_of_time(found["rate"], 1.0, printed, place)
        else:
            rate = _rate(found["rate"], found["scale"], _counted(unit[:-2]), False, printed, place)
    clock = found["left"] if found["total"] else None
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
    step, total, rest = _step(lower, spans) if _has(lower, words.SAYS_STEP) else (None, None, lower)
    loss = None
    if "loss" in rest and (found := _loss(rest)):
        loss = _float(found["value"])
        spans["loss"] = _span(found, "value")
        rest = _blanked(rest, [found])
    rates: list[Rate] = []
    if _has(rest, words.SAYS_UNIT):
        rates, rest = _unit_rates(line, rest)
    rates += _named_rates(line, rest)
    rates += _unnamed_rates(line, rest)
    eta_s = eta_s_of(lower, spans) if _has(lower, words.SAYS_ETA) else None
    certain = "skipped=" in lower or words.ONLY_A_STEP.fullmatch(lower)
    if total is None and loss is None and not rates and (step is None or not certain):
        return None  # nothing, or a sentence that speaks of a step
    return Reading(step, total, loss, _best_first(rates), eta_s, spans=spans)


def _loss(lower: str) -> re.Match[str] | None:
    found = words.LOSS.search(lower)
    if found is None or found["average"] is None:
        return found
    return next((other for other in words.LOSS.finditer(lower, found.end()) if other["average"] is None), found)


def _step(lower: str, spans: dict[str, Span]) -> tuple[int | None, int | None, str]:
    for word, shape in words.STEP_SHAPES:
        if word in lower and (shaped := shape.search(lower)):
            spans["step"] = _span(shaped, "step")
            if shaped["total"]:
                spans["total_steps"] = _span(shaped, "total")
            return _whole(shaped["step"]), _whole(shaped["total"]), _blanked(lower, [shaped])
    found = list(words.STEP.finditer(lower))
    if not found:
        return None, None, lower
    best = min(found, key=lambda match: words.STEP_NAMES.index(match["name"]))
    spans["step"] = _span(best, "step")
    of_all = next((match for match in [best, *found] if match["total"] and match["step"] == best["step"]), None)
    if of_all is not None:
        spans["total_steps"] = _span(of_all, "total")
    return _whole(best["step"]), _whole(of_all["total"]) if of_all else None, _blanked(lower, found)


def _unit_rates(line: str, lower: str) -> tuple[list[Rate], str]:
    rates: list[Rate | None] = []
    taken = []
    for found in words.UNIT_RATE.finditer(lower):
        before = found["before"]
        if found["follows"] and before and before not in words.SPEED_WORDS:
            continue  # `lr 0.1 tok/s 500`: the number in front belongs to the name before it
        place = Span(found.start("value"), found.start("follows") if found["follows"] else found.end())
        of_one, printed = bool(found["device"]), place.of(line)
        of_world = before == "computation" and "collection" in lower  # rsl_rl counts the steps of its environments
        counted = SAMPLES if of_world else _counted(found["counted"])
        rates.append(_rate(found["value"], found["scale"], counted, of_one, printed, place))
        taken.append(found)
    for found in words.UNIT_TIME.finditer(lower):
        place = Span(*found.span())
        rates.append(_rate_of_time(found["value"], 1e-3 if found["milli"] else 1.0, place.of(line), place))
        taken.append(found)
    return [rate for rate in rates if rate is not None], _blanked(lower, taken)


def _named_rates(line: str, lower: str) -> list[Rate]:
    rates: list[Rate | None] = []
    if _has(lower, words.SAYS_UNIT):
        for found in words.NAMED_BY_UNIT.finditer(lower):
            place, of_one = Span(*found.span()), bool(found["device"])
            counted = _counted(found["counted"])
            rates.append(_rate(found["value"], found["scale"], counted, of_one, place.of(line), place))
    if _has(lower, words.SAYS_NAMED):
        for pattern, counted, of_one in words.NAMED:
            if named := pattern.search(lower):
                place = Span(*named.span())
                rates.append(_rate(named["value"], named["scale"], counted, of_one, place.of(line), place))
                lower = _blanked(lower, [named])
    if _has(lower, words.SAYS_TIME) and (took := words.NAMED_TIME.search(lower)):
        unit = took["unit"] or took["name_unit"] or _unit_in_name(took["name"])
        if unit:
            place = Span(*took.span())
            rates.append(_rate_of_time(took["value"], 1e-3 if unit == "ms" else 1.0, place.of(line), place))
    return [rate for rate in rates if rate is not None]


def _unnamed_rates(line: str, lower: str) -> list[Rate]:
    """Of trainers that print a number whose unit only they know."""
    rates: list[Rate | None] = []
    found = words.MM_TIME.search(lower) if "data" in lower or "_time" in lower else None
    found = found or (words.IMAGENET_TIME.search(lower) if "data" in lower else None)
    if took := found:
        place = _span(took, "value")
        rates.append(_rate_of_time(took["value"], 1.0, place.of(line), place))
    if "time:" in lower and "/s" in lower and (images := words.TIMM_RATE.search(lower)):
        place = Span(images.start("value"), images.end())
        rates.append(_rate(images["value"], "", SAMPLES, False, place.of(line), place))
    return [rate for rate in rates if rate is not None]


def _unit_in_name(name: str) -> str:
    """`ms_per_step`, `s/batch`: the name says it; others must say it behind the number."""
    if name.endswith(" in s"):
        return "s"
    if name.endswith("_ms"):
        return "ms"
    first = name.replace("/", "_per_").partition("_per_")[0]
    return "ms" if first == "ms" else "s" if first in ("s", "sec", "seconds") else ""


def _counted(word: str) -> str:
    return next((what for what, words in words.COUNTED.items() if re.fullmatch(words, word)), ITERATIONS)


def _best_first(rates: list[Rate]) -> tuple[Rate, ...]:
    """One of each kind, what says most first."""
    first: dict[str, Rate] = {}
    for rate in rates:
        first.setdefault(rate.counted, rate)
    return tuple(first[kind] for kind in SAYS_MOST_FIRST if kind in first)


def _rate(value: str, scale: str | None, counted: str, per_device: bool, printed: str, place: Span) -> Rate | None:
    number = _float(value)
    if number is None or not number < words.ABSURD:
        return None
    return Rate(number * words.SCALES[scale or ""], counted, per_device, " ".join(printed.split()), place)


def _rate_of_time(value: str, unit_s: float, printed: str, place: Span) -> Rate | None:
    """None for a time of 0, which is no time."""
    number = _float(value)
    if number is None or not math.isfinite(number) or number * unit_s < 1e-9:
        return None
    return Rate(1 / (number * unit_s), ITERATIONS, False, " ".join(printed.split()), place)


def eta_s_of(lower: str, spans: dict[str, Span]) -> float | None:
    found = words.ETA.search(lower)
    if found is None:
        return None
    spans["eta_s"] = Span(*found.span())
    days = int(found["days"]) * 86400.0 if found["days"] else 0.0
    if found["clock"]:
        return days + _clock_s(found["clock"])
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    return days + sum(float(number) * units[unit] for number, unit in words.DURATION_WORD.findall(found["words"]))


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
    return int(text.replace(",", "")) if text else None
