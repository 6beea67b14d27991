"""A YAML file of settings, each with the line it stands on.

Rule: nothing is guessed. A key that stands twice, a list, or a mapping where YAML makes none is refused with its line,
and what is written in quotes stays text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import yaml


class SettingsFileError(ValueError):
    """The file is no settings file; the text begins with file and line."""


class Quoted(str):
    """Text that was written as such: `"5"` is no number."""


Placed = Tuple[Any, str]
"""A value and where it was written: `mine.yaml:12`."""


def read_settings_file(path: Path) -> Dict[str, Placed]:
    """Dotted name -> value and place; plain values are text still. Raises SettingsFileError or OSError."""
    try:
        top = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsFileError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path}: not YAML: {error}") from None
    settings: Dict[str, Placed] = {}
    if top is not None:
        _collect(path, top, "", settings)
    return settings


def _collect(path: Path, node: yaml.Node, prefix: str, into: Dict[str, Placed]) -> None:
    if not isinstance(node, yaml.MappingNode):
        raise SettingsFileError(f"{_place(path, node)}: settings are written as `name: value`, not as {_kind(node)}")
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise SettingsFileError(f"{_place(path, key)}: a setting's name is a word, not {_kind(key)}")
        name = prefix + key.value
        known = next((old for old in into if old == name or old.startswith(f"{name}.")), None)
        if known is not None:
            raise SettingsFileError(f"{_place(path, key)}: {name} stands twice; first in {into[known][1]}")
        if isinstance(value, yaml.MappingNode):
            _collect(path, value, f"{name}.", into)
        elif isinstance(value, yaml.ScalarNode):
            into[name] = (Quoted(value.value) if value.style else value.value, _place(path, key))
        else:
            raise SettingsFileError(f"{_place(path, value)}: {name} takes one value, not {_kind(value)}")


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a group" if isinstance(node, yaml.MappingNode) else "one value"
