"""Runs of the trainer as one NVIDIA H200 recorded them (tests/gpu/record.py), to be told again at another time.

Rule: what is told is what was recorded; only the clock is another. `stretch` draws a run of seconds out over minutes,
which is what the judgement of a rate wants: rates, memory and texts stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "saga"
TIMES = ("updated_at", "phase_started_at")


@dataclass(frozen=True)
class Recording:
    name: str
    raw: Mapping[str, Any]

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """Those with a status."""
        return [one for one in self.raw["snapshots"] if one["status"] is not None]

    @property
    def runtime(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["runtime"]
        return found

    @property
    def log(self) -> str:
        text: str = self.raw["log_tail"]
        return text

    @property
    def peak_mib(self) -> float:
        return max(max(line["peak_memory_mib"]) for line in self.raw["metrics"])

    def status(self, number: int, now_s: float, stretch: float = 1.0) -> dict[str, Any]:
        """The status of a snapshot, as if it were taken now."""
        status = dict(self.snapshots[number]["status"])
        last_s = status["updated_at"]
        return {**status, **{name: now_s + stretch * (status[name] - last_s) for name in TIMES}}

    def metrics(self, now_s: float, stretch: float = 1.0, *, until: int = -1) -> str:
        """metrics.jsonl as it stood at a snapshot."""
        last_s = self.snapshots[until]["status"]["updated_at"]
        lines = [line for line in self.raw["metrics"] if line["time"] <= last_s]
        return "".join(json.dumps({**line, "time": now_s + stretch * (line["time"] - last_s)}) + "\n" for line in lines)


def load(name: str) -> Recording:
    return Recording(name, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
