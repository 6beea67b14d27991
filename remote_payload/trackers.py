"""TensorBoard and Weights & Biases beside metrics.jsonl, for whoever asks for them.

Rule: metrics.jsonl is the record; a tracker gets the same numbers, keeps them in the run's folder and sends nothing
anywhere. One that is asked for and not installed is an error before the run begins.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

from config import ConfigError, LogConfig

Tracker = Callable[[int, Dict[str, float]], None]
"""Step and numbers by name."""


def open_trackers(log: LogConfig, folder: Path, run_id: str) -> List[Tracker]:
    """Raises ConfigError."""
    wanted = {"tensorboard": (log.tensorboard, _tensorboard), "wandb": (log.wandb, _wandb)}
    for name, (asked, _) in wanted.items():
        if asked and importlib.util.find_spec(name) is None:
            raise ConfigError(f"log.{name}: this Python has no {name}: pip install {name}, or set log.{name}=false")
    return [make(folder, run_id) for asked, make in wanted.values() if asked]


def numbers_of(record: Mapping[str, Any]) -> Dict[str, float]:
    """Numbers as they are, lists as name/1, name/2, ...; the rest is left out."""
    found: Dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, (int, float)) and name not in ("time", "step"):
            found[name] = float(value)
        elif isinstance(value, list):
            found.update({f"{name}/{place}": float(one) for place, one in enumerate(value, 1) if one is not None})
    return found


def _tensorboard(folder: Path, run_id: str) -> Tracker:
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, numbers: Dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return write


def _wandb(folder: Path, run_id: str) -> Tracker:
    run = importlib.import_module("wandb").init(mode="offline", dir=str(folder), project="dflash", name=run_id)

    def write(step: int, numbers: Dict[str, float]) -> None:
        run.log(numbers, step=step)

    return write
