"""Where a play stands, out of the lines of its record.

Rule: pure; a line that cannot be read is read over, as after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.probes.values import as_float, as_int, as_mapping, as_str

SCHEMA = 1
DONE, FAILED, SKIPPED = "done", "failed", "skipped"
PLAY, CONTINUED, BEGIN, NOTE, END, OVER = "play", "continued", "begin", "note", "end", "over"


@dataclass(frozen=True)
class Failure:
    """Why a step failed."""

    step: str
    what: str
    evidence: str
    way_out: str
    exit_code: int


@dataclass
class Progress:
    play_id: str = ""
    header: Mapping[str, object] = field(default_factory=dict)
    """The first line: playbook, sha256, vars, targets, by, at."""
    ended: dict[str, str] = field(default_factory=dict)
    """Step -> done, failed or skipped."""
    said: dict[str, str] = field(default_factory=dict)
    """Step -> what came of it."""
    warnings: dict[str, str] = field(default_factory=dict)
    """Step -> what a person should know although the play went on: why it failed, or what it did without."""
    values: dict[str, object] = field(default_factory=dict)
    """Built-in variables as far as they are known."""
    noted: dict[str, dict[str, object]] = field(default_factory=dict)
    """Step -> what it wrote down before it did something."""
    open_step: str | None = None
    """Begun and not ended."""
    failure: Failure | None = None
    """The one that decided how the play goes on."""
    over: str | None = None
    """done or failed; None: it goes on, or was cut off."""
    last_at_s: float | None = None

    @property
    def begun_runs(self) -> tuple[str, ...]:
        """Ids that were chosen for runs, whether or not they were ever started."""
        noted = [value for facts in self.noted.values() for name, value in facts.items() if name.endswith("run_id")]
        known = self.values.get("run_id")
        return tuple(dict.fromkeys(str(run_id) for run_id in (known, *noted) if run_id))

    def take(self, line: Mapping[str, object]) -> None:
        what, step = as_str(line.get("what")), as_str(line.get("step")) or ""
        self.last_at_s = as_float(line.get("at")) or self.last_at_s
        if what == PLAY:
            self.play_id, self.header = as_str(line.get("play")) or "", line
            self.values.update(as_mapping(line.get("values")))
        elif what == BEGIN:
            self.open_step = step
        elif what == NOTE:
            self.noted.setdefault(step, {}).update(as_mapping(line.get("facts")))
        elif what == END:
            self.open_step = None
            self.ended[step] = as_str(line.get("how")) or FAILED
            self.said[step] = as_str(line.get("said")) or ""
            self.values.update(as_mapping(line.get("values")))
            warning = self.said[step] if self.ended[step] == FAILED else as_str(line.get("warning"))
            if warning and line.get("decides") is not True:
                self.warnings[step] = warning
            if line.get("decides") is True:
                self.failure = _failure(step, as_mapping(line.get("failure")))
        elif what == OVER:
            self.over = as_str(line.get("outcome"))


def read_progress(lines: Iterable[bytes]) -> Progress:
    """Empty where nothing can be read."""
    progress = Progress()
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            progress.take(line)
    return progress


def failure_record(failure: Failure) -> dict[str, object]:
    return {
        "what": failure.what,
        "evidence": failure.evidence,
        "way_out": failure.way_out,
        "exit_code": failure.exit_code,
    }


def _failure(step: str, raw: Mapping[str, object]) -> Failure:
    return Failure(
        step,
        as_str(raw.get("what")) or "failed",
        as_str(raw.get("evidence")) or "",
        as_str(raw.get("way_out")) or "",
        as_int(raw.get("exit_code")) or 1,
    )
