"""The trainer's settings: config.yaml holds every key and its default; a file and then `--set` go on top.

Rule: strict. An unknown key, a wrong type or an impossible value is a ConfigError that names the file and line, and
says what to write.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple, get_type_hints

import yaml
from settings_file import Placed, Quoted, SettingsFileError, read_settings_file

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
class DataConfig:
    max_tokens: int
    min_response_tokens: int
    held_out_every: int
    thinking: bool
    chat_template: str
    regenerate: bool
    strict: bool


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
    start_from: str


@dataclass(frozen=True)
class TrainConfig:
    batch: int
    accumulation: int
    recompute: bool
    pack: bool
    anchors: int
    length_buckets: int
    learning_rate: float
    warmup: float
    gradient_clip: float
    weight_decay: float
    loss: str
    loss_decay: float
    loss_chunk_blocks: int


@dataclass(frozen=True)
class CompileConfig:
    strict: bool


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
    tensorboard: bool
    wandb: bool


@dataclass(frozen=True)
class WatchdogConfig:
    stall_s: float
    compile_s: float


@dataclass(frozen=True)
class EvaluateConfig:
    prompts: int
    new_tokens: int
    control_prompts: int


@dataclass(frozen=True)
class Config:
    seed: int
    device: str
    engine: str
    threads: int
    steps: int
    block_size: int
    text: TextConfig
    data: DataConfig
    target: TargetConfig
    drafter: DrafterConfig
    train: TrainConfig
    compile: CompileConfig
    queue: QueueConfig
    checkpoint: CheckpointConfig
    log: LogConfig
    watchdog: WatchdogConfig
    evaluate: EvaluateConfig

    def flat(self) -> Dict[str, Any]:
        """Dotted name -> value, in the file's order."""
        return _flatten(dataclasses.asdict(self))


MOST_THREADS = 1024
"""As many are really started."""
MAY_BE_ZERO = {"seed", "train.warmup", "train.weight_decay"}
MAY_CHANGE_ON_RESUME = (
    "steps",
    "device",
    "engine",
    "threads",
    "compile.",
    "queue.",
    "checkpoint.",
    "log.",
    "evaluate.",
    "watchdog.",
    "data.strict",
    "drafter.start_from",
    "train.recompute",
)
"""Names and prefixes; everything else would make the resumed run another run."""


def load_config(overrides: Mapping[str, Any]) -> Config:
    """The defaults with these settings on top. Raises ConfigError."""
    return resolve(place_all(overrides, "settings"))[0]


def resolve(*layers: Mapping[str, Placed]) -> Tuple[Config, Dict[str, str]]:
    """Defaults, then each layer above the one before -> the config, and where what is no default was written.

    Raises ConfigError, naming the place.
    """
    values = read_settings_file(DEFAULTS)
    placed: Dict[str, Placed] = {}
    for layer in layers:
        placed.update(layer)
    values.update(placed)
    known = [name for name, _ in _names(Config)]
    unknown = [(name, place) for name, (_, place) in values.items() if name not in known]
    if unknown:
        raise ConfigError("\n".join(f"{place}: {_unknown(name, known)}" for name, place in unknown))
    config: Config = _build(Config, values, "")
    places = {name: place for name, (_, place) in placed.items()}
    _check(config, places)
    return config, places


def place_all(tree: Mapping[str, Any], place: str) -> Dict[str, Placed]:
    """Nested or dotted settings of which only one place is known."""
    return {name: (value, place) for name, value in _flatten(tree).items()}


def read_config_file(path: Path) -> Dict[str, Placed]:
    """Raises ConfigError."""
    try:
        return read_settings_file(path)
    except (OSError, SettingsFileError) as error:
        raise ConfigError(str(error)) from error


def to_yaml(config: Config) -> str:
    """The whole resolved config, as a file that `--config` reads."""
    text: str = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)
    return text


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


def _names(section: Any, prefix: str = "") -> Iterator[Tuple[str, type]]:
    for name, kind in get_type_hints(section).items():
        if dataclasses.is_dataclass(kind):
            yield from _names(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, kind


def _build(section: Any, values: Mapping[str, Placed], prefix: str) -> Any:
    fields: Dict[str, Any] = {}
    for name, kind in get_type_hints(section).items():
        dotted = prefix + name
        if dataclasses.is_dataclass(kind):
            fields[name] = _build(kind, values, f"{dotted}.")
        else:
            fields[name] = _convert(dotted, *values[dotted], kind)
    return section(**fields)


def _convert(name: str, value: Any, place: str, kind: type) -> Any:
    """A command line knows only text, so `5` and `true` are read as the type the setting has."""
    if kind is str and isinstance(value, str):
        return str(value)
    if isinstance(value, Quoted):
        raise ConfigError(f'{place}: {name}: "{value}" is text, and should be {_KIND_WORDS[kind]}: without the quotes')
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
    raise ConfigError(f"{place}: {name}: {value!r} is not {_KIND_WORDS[kind]}")


_KIND_WORDS: Dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _unknown(name: str, known: List[str]) -> str:
    """Close by its last word, whole, or by the word alone."""
    last_words = {one.rsplit(".", 1)[-1] for one in known}
    words = {name.rsplit(".", 1)[-1], name.replace("_", ".").rsplit(".", 1)[-1]}
    meant = {word for one in words for word in difflib.get_close_matches(one, last_words, n=1, cutoff=0.75)}
    close = difflib.get_close_matches(name, [one for one in known if one.rsplit(".", 1)[-1] in meant], n=3, cutoff=0.0)
    close = close or difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    guess = f"; did you mean {' or '.join(close)}?" if close else f" (all settings: {DEFAULTS.name})"
    return f"unknown setting {name}{guess}"


def _check(config: Config, places: Mapping[str, str]) -> None:
    def refuse(sentence: str) -> ConfigError:
        name = next((name for name in sorted(places, key=len, reverse=True) if name in sentence), None)
        return ConfigError(f"{places[name]}: {sentence}" if name else sentence)

    for name, value in config.flat().items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low_enough = value >= 0 if name in MAY_BE_ZERO else value > 0
            if not low_enough:
                raise refuse(f"{name}: {value} must be {'at least' if name in MAY_BE_ZERO else 'above'} 0")
    rules: List[Tuple[bool, str]] = [
        (config.device in ("auto", "cpu", "cuda"), f"device: {config.device!r} is none of auto, cpu, cuda"),
        (
            config.engine in ("auto", "threads", "processes"),
            f"engine: {config.engine!r} is none of auto, threads, processes",
        ),
        (config.seed < 2**32, f"seed: {config.seed} must be below {2**32}"),
        (config.threads <= MOST_THREADS, f"threads: {config.threads} is more than {MOST_THREADS}"),
        (config.block_size >= 2, f"block_size: {config.block_size} drafts nothing; write 2 or more"),
        (config.text.vocabulary >= 258, "text.vocabulary: 258 rows (256 bytes and two specials) are the least"),
        (
            config.text.prompt_tokens + 2 <= config.text.tokens,
            f"text.tokens: {config.text.tokens} leaves no response after {config.text.prompt_tokens} prompt tokens",
        ),
        (
            config.data.min_response_tokens >= 2,
            f"data.min_response_tokens: {config.data.min_response_tokens} leaves nothing to learn; write 2 or more",
        ),
        (
            config.data.held_out_every >= 2,
            f"data.held_out_every: {config.data.held_out_every} leaves nothing to train on; write 2 or more",
        ),
        (config.target.heads % config.target.kv_heads == 0, "target.heads must be a multiple of target.kv_heads"),
        (config.target.head_size % 2 == 0, "target.head_size must be even: RoPE turns pairs"),
        (config.target.layers >= 6, "target.layers: with fewer than 6 the selected layers repeat"),
        (config.train.loss in ("decay", "dpace"), f"train.loss: {config.train.loss!r} is neither decay nor dpace"),
        (config.train.warmup < 1, f"train.warmup: {config.train.warmup} is a share of the steps, below 1"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise refuse(sentence)
