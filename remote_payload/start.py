"""What the trainer is started with: the command line, the run's folder and its run spec.

Rule: under orch the run spec says what to run. By hand the command line does, and the run gets a new folder in ./runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

import contract
from config import Config, ConfigError, place_all, read_config_file
from progress import Progress
from settings_file import Placed
from stopping import StopRequest


@dataclasses.dataclass(frozen=True)
class Run:
    """One run, as every part of it sees it in its process."""

    config: Config
    spec: contract.RunSpec
    folder: Path
    progress: Progress
    stop: StopRequest


def read_command_line(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train.py", description="Trains a DFlash drafter.", allow_abbrev=False)
    add_settings(parser)
    parser.add_argument("--warmup", action="store_true", help="compile what the run will ask for, and end")
    parser.add_argument("--plan", action="store_true", help="say what would run, on what and how large; run nothing")
    hand = parser.add_argument_group("started by hand (orch writes these into run.json)")
    hand.add_argument("--data", metavar="PATH", help="conversations, text or token ids to train on")
    hand.add_argument("--model", metavar="FOLDER", help="the target")
    hand.add_argument("--resume", metavar="CHECKPOINT", help="folder of a complete checkpoint")
    hand.add_argument("--targets", type=int, default=1, metavar="N", help="devices that hold the target")
    hand.add_argument("--drafters", type=int, default=1, metavar="N", help="devices that hold drafter replicas")
    return parser.parse_args(arguments)


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, on top of config.yaml's defaults")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="on top of the file"
    )


def find_run(asked: argparse.Namespace) -> Tuple[Path, contract.RunSpec]:
    """Raises OSError, or ValueError when run.json is none."""
    folder = contract.run_dir()
    if folder is not None:
        spec = contract.read_run_spec(folder)
        return folder, dataclasses.replace(spec, warmup=spec.warmup or asked.warmup)
    spec = spec_of(asked)
    folder = Path.cwd() / "runs" / spec.run_id
    folder.mkdir(parents=True)
    return folder, spec


def spec_of(asked: argparse.Namespace) -> contract.RunSpec:
    """By hand: what the command line says."""
    return contract.RunSpec(
        run_id=time.strftime("%Y%m%d-%H%M%S"),
        targets=asked.targets,
        drafters=asked.drafters,
        data=asked.data,
        model=asked.model,
        resume_from=asked.resume,
        warmup=asked.warmup,
    )


def layers_of(asked: argparse.Namespace, spec: contract.RunSpec) -> List[Mapping[str, Placed]]:
    """Raises ConfigError, for what else the spec says too."""
    for name, count in (("targets", spec.targets), ("drafters", spec.drafters)):
        if type(count) is not int or count < 1:
            raise ConfigError(f"{name}: {count!r} is not a whole number above 0")
    if not isinstance(spec.settings, dict):
        raise ConfigError(f"{contract.RUN_SPEC}: settings: {spec.settings!r} are not names and values")
    return [*settings_layers(asked), place_all(spec.settings, contract.RUN_SPEC)]


def settings_layers(asked: argparse.Namespace) -> List[Mapping[str, Placed]]:
    """Of `--config` and `--set`. Raises ConfigError."""
    file = read_config_file(asked.config) if asked.config else {}
    line: Dict[str, Placed] = {}
    for word in asked.set:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--set {word}: write --set NAME=VALUE")
        line[name] = (value, f"--set {word}")
    return [file, line]
