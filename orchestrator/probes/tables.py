"""Steps that a trainer tells of in several rows: `| loss | 20.1 |`, a headline and what is indented below it, columns
under a header, wandb's summary.

Rule: a row alone is read as any other; here is decided which rows are of one step, and what a column's header names.
"""

from __future__ import annotations

import math
import re

from orchestrator.probes.printed import eta_s_of, read_line
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
_CELL = re.compile(r"[^\t|\s]+(?: [^\t|\s]+)*")
"""Columns are parted by a tab, a bar, or more than one blank."""
_BELOW = re.compile(r"\s{2,}\S|\s*[\u2022*-] \S|\t")


class Tables:
    """Takes the rows of a log in order."""

    def __init__(self) -> None:
        self._is_open = False
        self._left = 0
        self._known: set[str] = set()
        self._in_summary = False
        self._in_pairs = False
        self._columns: tuple[int | None, int | None] | None = None
        self._width = 0

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
            rate = Rate(number, ITERATIONS, False, " ".join(pair[0].strip("| ").split()), place)
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
        cells = [(found[0].lower(), found.span()) for found in _CELL.finditer(short)]
        titles = [title for title, _ in cells]
        step = next((n for n, title in enumerate(titles) if title in _STEP_TITLES), None)
        loss = next((n for n, title in enumerate(titles) if title in _LOSS_TITLES), None)
        known = sum(title in _STEP_TITLES | _LOSS_TITLES | _OTHER_TITLES for title in titles)
        if loss is None or known < 2 or titles[0] not in _STEP_TITLES | {"epoch"}:
            return False
        self._begin()
        self._columns, self._width = (step, loss), len(cells)
        return True

    def _row(self, short: str) -> Reading | None:
        assert self._columns is not None
        cells = list(_CELL.finditer(short))
        step, loss = self._columns
        if len(cells) != self._width or loss is None or (number := _float(cells[loss][0])) is None:
            return None
        if step is None:
            return Reading(loss=number, spans={"loss": Span(*cells[loss].span())})
        if not cells[step][0].isdecimal() or len(cells[step][0]) > 15:
            return None
        spans = {"loss": Span(*cells[loss].span()), "step": Span(*cells[step].span())}
        return Reading(step=int(cells[step][0]), loss=number, spans=spans)

    def _below(self, line: str) -> tuple[Reading | None, bool]:
        """A headline names the step alone; what is indented below it is of that step."""
        reading = read_line(line)
        is_below = self._is_open and self._left > 0 and _BELOW.match(line) is not None
        self._left -= 1
        if reading is None:
            spans: dict[str, Span] = {}
            left_s = eta_s_of(lowered(line), spans) if is_below and "ETA" in line else None
            return (None, False) if left_s is None else (Reading(eta_s=left_s, spans=spans), True)
        if is_below and reading.step is None and not reading.is_bar:
            return reading, True
        alone = reading.step is not None and reading.loss is None and not reading.rates and not reading.is_bar
        self._is_open, self._left = alone, MAX_ROWS
        return reading, False


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text is not None and re.fullmatch(_NUMBER, text, re.IGNORECASE) else None
    except ValueError:
        return None
