"""Steps that a trainer tells of in several rows: `| loss | 20.1 |`, a headline and what is indented below it, columns
under a header, wandb's summary.

Rule: a row alone is read as any other; here is decided which rows are of one step, and what a column's header names.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from orchestrator.probes.printed import eta_s_of, read_line
from orchestrator.probes.printed_words import ANY_COUNTED
from orchestrator.probes.rate import ITERATIONS, Rate, Reading
from orchestrator.probes.spans import Span
from orchestrator.probes.text import lowered

MAX_ROWS = 40
"""Below its headline a step is told in so many rows at most."""
MAX_CHARS = 400
_NUMBER = r"-?(?:\d{1,15}(?:\.\d{0,30})?(?:e[-+]?\d{1,4})?|nan|inf)"
_PAIR = re.compile(rf"\s*\|\s+(?P<name>[A-Za-z][\w ./-]{{0,60}}?)\s+\|\s+(?P<value>{_NUMBER})?\s*\|\s*", re.IGNORECASE)
"""Of stable-baselines, baselines and Spinning Up."""
_SUMMARY = re.compile(rf"wandb: +(?P<name>[\w/. ()-]{{1,80}}?) +(?P<value>{_NUMBER}|\S.*)", re.IGNORECASE)
_STEPS = (
    *("time/total_timesteps", "total_timesteps", "totalenvinteracts", "serial_timesteps"),
    *("train/global_step", "trainer/global_step", "global_step", "_step"),
)
_LOSSES = ("loss", "train/loss", "train_loss")
_RATES = ("fps", "time/fps")
"""Of the steps that _STEPS counts."""
_STEP_TITLES = {"step", "iteration", "iter", "steps", "global_step"}
_LOSS_TITLES = {"training loss", "train loss", "train_loss", "loss", "trn_loss"}
_OTHER_TITLES = {"epoch", "validation loss", "valid_loss", "val_loss", "time", "accuracy"}
_KNOWN_TITLES = _STEP_TITLES | _LOSS_TITLES | _OTHER_TITLES
_FIRST_TITLE = re.compile(r"[\s|\u2502\u2503]*(?:global_)?(?:step|iter|epoch)", re.IGNORECASE)
_RATE_TITLE = re.compile(
    rf"(?:{ANY_COUNTED})(?:/s(?:ec)?|_per_s(?:ec(?:ond)?)?| per second)(?:/(?:gpu|device))?|tps|tgs", re.IGNORECASE
)
_CELL = re.compile(r"[^\t|\u2502\u2503\s]+(?: [^\t|\u2502\u2503\s]+)*")
"""Columns are parted by a tab, a bar, or more than one blank; or by commas."""
_CELL_OF_CSV = re.compile(r"[^,]+")
_HEADLINE = re.compile(
    r"[=#*\u2500\u2501-]{3,} ?(?:training )?(?:step|iteration):? {1,3}(?P<step>\d{1,15})(?: ?/ ?(?P<total>\d{1,15}))? ?"
    r"[=#*\u2500\u2501-]{3,}",
    re.IGNORECASE,
)
_OF_HEADLINE = re.compile(r"[A-Za-z][\w /.()%-]{0,40}? *[:=] ")
_BELOW = re.compile(r"\s{2,}\S|\s*[\u2022*-] \S|\t")


class Tables:
    """Takes the rows of a log in order."""

    def __init__(self) -> None:
        self._is_open = self._is_framed = False
        self._left = 0
        self._known: set[str] = set()
        self._in_summary = False
        self._in_pairs = False
        self._columns: list[str] | None = None

    def read(self, line: str) -> tuple[Reading | None, bool]:
        """(what the row says, whether it is more of the step before)."""
        short = line[:MAX_CHARS]
        if (pair := _PAIR.fullmatch(short)) is not None:
            if not self._in_pairs:
                self._begin()
                self._in_pairs = True
            return self._named(pair)
        self._in_pairs = False
        if short.startswith("wandb:"):
            return self._of_wandb(line, short)
        if self._header(short):
            return None, False
        if self._columns is not None:
            if not any(letter.isalnum() for letter in short) and short.strip():
                return None, False  # a rule between rows
            reading = self._row(short)
            if reading is not None:
                return reading, False
            self._columns = None
        return self._below(line)

    def _begin(self) -> None:
        self._is_open, self._columns = False, None
        self._known = set()

    def _named(self, pair: re.Match[str]) -> tuple[Reading | None, bool]:
        """A row of one name and one value, of several that are of one step."""
        name, value = pair["name"].strip().lower(), pair["value"]
        number = _float(value)
        if number is None:
            return None, False
        kind = "step" if name in _STEPS else "loss" if name in _LOSSES else "rate" if name in _RATES else ""
        if not kind or kind in self._known or (kind != "loss" and not math.isfinite(number)):
            return None, False
        goes_on = bool(self._known)
        self._known.add(kind)
        place = Span(*pair.span("value"))
        if kind == "rate":
            place = Span(pair.start("name"), pair.end("value"))
            rate = Rate(number, ITERATIONS, False, " ".join(place.of(pair.string).split()), place)
            return Reading(rates=(rate,)), goes_on
        if kind == "loss":
            return Reading(loss=number, spans={"loss": place}), goes_on
        return Reading(step=int(number), spans={"step": place}), goes_on

    def _of_wandb(self, line: str, short: str) -> tuple[Reading | None, bool]:
        if "Run summary:" in short:
            self._begin()
            self._in_summary = True
            return None, False
        found = _SUMMARY.fullmatch(short.rstrip())
        if not self._in_summary or found is None:
            self._in_summary = False
            return read_line(line), False
        return self._named(found)

    def _header(self, short: str) -> bool:
        if _FIRST_TITLE.match(short) is None:
            return False
        titles = [title[0].strip().lower() for title in _cells(short)]
        known = sum(title in _KNOWN_TITLES or _RATE_TITLE.fullmatch(title) is not None for title in titles)
        told = {"step" if title in _STEP_TITLES else "loss" for title in titles if title in _STEP_TITLES | _LOSS_TITLES}
        if not told or known < 2 or titles[0] not in _STEP_TITLES | {"epoch"} or not all(map(_is_title, titles)):
            return False
        self._begin()
        self._columns = titles
        return True

    def _row(self, short: str) -> Reading | None:
        """What each column's title and its cell say together, as in a line of their own."""
        cells = _cells(short)
        if (
            self._columns is None
            or len(cells) != len(self._columns)
            or not any(_float(one[0].strip()) for one in cells)
        ):
            return None
        found = Reading()
        for title, cell in zip(self._columns, cells, strict=True):
            told = read_line(f"{title}: {cell[0].strip()}") if title not in _OTHER_TITLES else None
            if told is None:
                continue
            begin = cell.start() + len(cell[0]) - len(cell[0].lstrip())
            place = Span(begin, begin + len(cell[0].strip()))
            found = Reading(
                step=told.step if found.step is None else found.step,
                loss=told.loss if found.loss is None else found.loss,
                rates=(*found.rates, *(replace(rate, place=place, printed=cell[0].strip()) for rate in told.rates)),
                spans={**dict.fromkeys(told.spans, place), **found.spans},
            )
        return found if found.step is not None or found.loss is not None else None

    def _below(self, line: str) -> tuple[Reading | None, bool]:
        """A headline names the step alone; what is indented below it is of that step."""
        if (headline := _HEADLINE.fullmatch(line[:MAX_CHARS].strip())) is not None:
            self._is_open, self._is_framed, self._left = True, True, MAX_ROWS
            at = len(line) - len(line.lstrip())
            spans = {
                name: Span(at + headline.start(group), at + headline.end(group))
                for name, group in (("step", "step"), ("total_steps", "total"))
                if headline[group]
            }
            total = int(headline["total"]) if headline["total"] else None
            return Reading(step=int(headline["step"]), total_steps=total, spans=spans), False
        reading = read_line(line)
        is_below = (
            self._is_open
            and self._left > 0
            and (_BELOW.match(line) is not None or (self._is_framed and _OF_HEADLINE.match(line) is not None))
        )
        self._left -= 1
        if reading is None:
            places: dict[str, Span] = {}
            left_s = eta_s_of(lowered(line), places) if is_below and "ETA" in line else None
            return (None, False) if left_s is None else (Reading(eta_s=left_s, spans=places), True)
        if is_below and reading.step is None and not reading.is_bar:
            return reading, True
        alone = reading.step is not None and reading.loss is None and not reading.rates and not reading.is_bar
        self._is_open, self._is_framed, self._left = alone, False, MAX_ROWS
        return reading, False


def _cells(line: str) -> list[re.Match[str]]:
    pattern = _CELL_OF_CSV if "," in line and "  " not in line and "|" not in line else _CELL
    return list(pattern.finditer(line))


def _is_title(text: str) -> bool:
    return text[:1].isalpha() or text[:1] == "_"


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text is not None and re.fullmatch(_NUMBER, text, re.IGNORECASE) else None
    except ValueError:
        return None
