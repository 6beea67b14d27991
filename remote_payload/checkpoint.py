"""Checkpoints: step-<n>/ with the drafter's weights and everything else the next step depends on.

Rule: a folder without the marker does not count. It is written beside, flushed, marked, then renamed into place.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional

import contract
import torch
from config import Config, ConfigError, to_yaml
from order import Chapter, Chapters
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"
TRAINING_STATE = "training_state.pt"
FACTS = "checkpoint.json"
BEST = "best.json"
"""Beside the checkpoints: the step and acceptance of the best of them."""


class NotSaved(RuntimeError):
    """A checkpoint could not be written; those before it are as they were."""


class CheckpointError(ConfigError):
    """A checkpoint that cannot be resumed from."""


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    step: int
    weights: Dict[str, torch.Tensor]
    optimisation: Dict[str, Any]
    random_state: torch.Tensor
    settings: Dict[str, Any]
    """Flat, as resolved by the run that wrote it."""
    prepared: Path
    """The folder with the target and the text it was trained on."""
    chapters: Chapters
    batches_met: int
    """Over the whole run, by however many replicas."""
    target: Optional[str]
    """Identity of the target whose hidden states it learned. None: not recorded."""


def save_checkpoint(
    parent: Path,
    *,
    step: int,
    drafter: torch.nn.Module,
    optimisation: Dict[str, Any],
    config: Config,
    prepared: Path,
    chapters: Chapters,
    batches_met: int,
    keep: int,
    acceptance: Optional[float] = None,
    target: Optional[str] = None,
) -> Path:
    """target: its identity. The newest `keep` stay, and the one with the best acceptance, which best.json names.

    Raises NotSaved."""
    final = parent / f"step-{step}"
    if (final / contract.CHECKPOINT_MARKER).exists():
        return final
    fresh = parent / f".step-{step}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    state = {
        "step": step,
        "optimisation": optimisation,
        "random_state": torch.get_rng_state(),
        "settings": config.flat(),
        "chapters": [(chapter.begins, chapter.rows) for chapter in chapters],
        "batches_met": batches_met,
        "prepared": os.path.relpath(prepared, parent),
        "target": target,
    }
    try:
        _write(fresh, step, drafter, acceptance, config, state)
        os.replace(fresh, final)
        _flush(parent)
    except Exception as error:  # of the disk, of torch and of safetensors, each in its own words
        shutil.rmtree(fresh, ignore_errors=True)
        free_mib = shutil.disk_usage(parent.parent).free // 2**20
        kept = last_checkpoint(parent)
        raise NotSaved(
            f"the checkpoint of step {step} could not be written ({free_mib} MiB free): {type(error).__name__}: "
            f"{(str(error).splitlines() or [''])[0][:200]}; last good checkpoint: {kept or 'none'}"
        ) from error
    _keep_newest_and_best(parent, keep)
    return final


def _keep_newest_and_best(parent: Path, keep: int) -> None:
    best = best_step(parent)
    if best is not None:
        facts = json.loads((parent / f"step-{best}" / FACTS).read_text(encoding="utf-8"))
        try:
            contract.write_json(parent / BEST, facts)
        except OSError:  # no room: then it names another, which must not be removed
            return
    for old in complete_steps(parent)[:-keep]:
        if old != best:
            shutil.rmtree(parent / f"step-{old}")


def _write(
    fresh: Path,
    step: int,
    drafter: torch.nn.Module,
    acceptance: Optional[float],
    config: Config,
    state: Dict[str, Any],
) -> None:
    fresh.mkdir(parents=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in drafter.state_dict().items()}
    save_file(weights, str(fresh / WEIGHTS), metadata={"format": "pt"})
    torch.save(state, fresh / TRAINING_STATE)
    contract.write_json(fresh / FACTS, {"step": step, "acceptance": acceptance})
    (fresh / contract.CONFIG).write_text(to_yaml(config), encoding="utf-8")
    (fresh / contract.CHECKPOINT_MARKER).touch()
    for path in [*fresh.iterdir(), fresh]:
        _flush(path)


def load_checkpoint(folder: Path, device: torch.device) -> Checkpoint:
    """Raises CheckpointError."""
    if not (folder / contract.CHECKPOINT_MARKER).exists():
        raise CheckpointError(f"{folder} is not a complete checkpoint: no {contract.CHECKPOINT_MARKER} in it")
    try:
        state = torch.load(folder / TRAINING_STATE, map_location=device, weights_only=True)
        return Checkpoint(
            folder=folder,
            step=int(state["step"]),
            weights=load_file(str(folder / WEIGHTS), device=str(device)),
            optimisation=state["optimisation"],
            random_state=state["random_state"].cpu(),
            settings=state["settings"],
            prepared=(folder.resolve().parent / state["prepared"]).resolve(),
            chapters=tuple(Chapter(*chapter) for chapter in state["chapters"]),
            batches_met=int(state["batches_met"]),
            target=state.get("target"),
        )
    except Exception as error:  # of zip files, pickles, safetensors, and of what is not in them
        others = [f"step-{step}" for step in complete_steps(folder.parent) if f"step-{step}" != folder.name]
        raise CheckpointError(
            f"{folder} is damaged ({type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}); "
            + (f"beside it there is {', '.join(others)}" if others else "there is no other beside it")
        ) from error


def complete_steps(parent: Path) -> List[int]:
    """Ascending."""
    marked = [path.parent.name for path in parent.glob(f"step-*/{contract.CHECKPOINT_MARKER}")]
    return sorted(int(name[len("step-") :]) for name in marked)


def best_step(parent: Path) -> Optional[int]:
    """Of those with a known acceptance; the later of two equal ones."""
    known = []
    for step in complete_steps(parent):
        path = parent / f"step-{step}" / FACTS
        acceptance = json.loads(path.read_text(encoding="utf-8"))["acceptance"] if path.is_file() else None
        if acceptance is not None:
            known.append((acceptance, step))
    return max(known)[1] if known else None


def last_checkpoint(parent: Path) -> Optional[Path]:
    steps = complete_steps(parent)
    return parent / f"step-{steps[-1]}" if steps else None


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
