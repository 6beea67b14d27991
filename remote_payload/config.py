"""The trainer's settings: config.yaml holds every key and its default, a run overrides by dotted name.

Rule: strict. An unknown key, a wrong type or an impossible value is a ConfigError that says what to write.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple, get_type_hints

import yaml

DEFAULTS = Path(__file__).resolve().parent / "config.yaml"


class ConfigError(ValueError):
    """A setting that cannot be used."""


@dataclass(frozen=True)
class TextConfig:
    vocabulary: int
    documents: int
    tokens: int
    prompt_tokens: int
    regenerate: bool


@dataclass(frozen=True)
class TargetConfig:
    steps: int
    batch: int
    learning_rate: float
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int


@dataclass(frozen=True)
class DrafterConfig:
    layers: int
    intermediate_size: int


@dataclass(frozen=True)
class TrainConfig:
    batch: int
    accumulation: int
    anchors: int
    learning_rate: float
    warmup: float
    gradient_clip: float
    weight_decay: float
    loss_decay: float
    loss_chunk_blocks: int


@dataclass(frozen=True)
class QueueConfig:
    max_mib: float


@dataclass(frozen=True)
class CheckpointConfig:
    every_steps: int
    keep: int


@dataclass(frozen=True)
class LogConfig:
    every_steps: int


@dataclass(frozen=True)
class EvaluateConfig:
    prompts: int
    new_tokens: int
    control_prompts: int


@dataclass(frozen=True)
class Config:
    seed: int
    device: str
    threads: int
    steps: int
    block_size: int
    text: TextConfig
    target: TargetConfig
    drafter: DrafterConfig
    train: TrainConfig
    queue: QueueConfig
    checkpoint: CheckpointConfig
    log: LogConfig
    evaluate: EvaluateConfig

    def flat(self) -> Dict[str, Any]:
        """Dotted name -> value, in the file's order."""
        return _flatten(dataclasses.asdict(self))


MAY_BE_ZERO = {"seed", "train.warmup", "train.weight_decay"}
MAY_CHANGE_ON_RESUME = ("steps", "device", "threads", "queue.", "checkpoint.", "log.", "evaluate.")
"""Names and prefixes; everything else would make the resumed run another run."""


def load_config(overrides: Mapping[str, Any], defaults: Path = DEFAULTS) -> Config:
    """Raises ConfigError."""
    values = _flatten(yaml.safe_load(defaults.read_text(encoding="utf-8")))
    values.update(_flatten(overrides))
    config: Config = _build(Config, values, "")
    if values:
        raise ConfigError("\n".join(_unknown(name, list(config.flat())) for name in values))
    _check(config)
    return config


def differences_that_forbid_resume(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[str]:
    """Sentences, one for each setting that differs and may not. Both flat."""
    names = [name for name in new if not name.startswith(MAY_CHANGE_ON_RESUME)]
    return [f"{name}: {old.get(name)!r} then, {new[name]!r} now" for name in names if old.get(name) != new[name]]


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _build(section: Any, values: Dict[str, Any], prefix: str) -> Any:
    """Takes what it knows out of `values`."""
    fields: Dict[str, Any] = {}
    for name, kind in get_type_hints(section).items():
        dotted = prefix + name
        if dataclasses.is_dataclass(kind):
            fields[name] = _build(kind, values, f"{dotted}.")
        elif dotted in values:
            fields[name] = _convert(dotted, values.pop(dotted), kind)
        else:
            raise ConfigError(f"{dotted} has no value")
    return section(**fields)


def _convert(name: str, value: Any, kind: type) -> Any:
    """A command line knows only text, so `5` and `true` are read as the type the setting has."""
    if kind is str and isinstance(value, str):
        return value
    if kind is bool:
        written = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
        if written is not None:
            return written
    if kind in (int, float) and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if kind is float and abs(number) < float("inf"):
            return number
        if kind is int and abs(number) < float("inf") and number == int(number):
            return int(number)
    raise ConfigError(f"{name}: {value!r} is not {_KIND_WORDS[kind]}")


_KIND_WORDS: Dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _unknown(name: str, known: List[str]) -> str:
    last = name.replace("_", ".").rsplit(".", 1)[-1]
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    close += [one for one in known if one.rsplit(".", 1)[-1] in (last, name) and one not in close]
    guess = f"; did you mean {' or '.join(close[:3])}?" if close else f" (all settings: {DEFAULTS.name})"
    return f"unknown setting {name}{guess}"


def _check(config: Config) -> None:
    for name, value in config.flat().items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low_enough = value >= 0 if name in MAY_BE_ZERO else value > 0
            if not low_enough:
                raise ConfigError(f"{name}: {value} must be {'at least' if name in MAY_BE_ZERO else 'above'} 0")
    rules: List[Tuple[bool, str]] = [
        (config.device in ("auto", "cpu", "cuda"), f"device: {config.device!r} is none of auto, cpu, cuda"),
        (config.block_size >= 2, f"block_size: {config.block_size} drafts nothing; write 2 or more"),
        (config.text.vocabulary >= 258, "text.vocabulary: 258 rows (256 bytes and two specials) are the least"),
        (
            config.text.prompt_tokens + 2 <= config.text.tokens,
            f"text.tokens: {config.text.tokens} leaves no response after {config.text.prompt_tokens} prompt tokens",
        ),
        (config.target.heads % config.target.kv_heads == 0, "target.heads must be a multiple of target.kv_heads"),
        (config.target.head_size % 2 == 0, "target.head_size must be even: RoPE turns pairs"),
        (config.target.layers >= 6, "target.layers: with fewer than 6 the selected layers repeat"),
        (config.train.warmup < 1, f"train.warmup: {config.train.warmup} is a share of the steps, below 1"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigError(sentence)
