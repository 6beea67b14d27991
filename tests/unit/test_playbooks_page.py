"""docs/playbooks.md lists exactly the operations, options, defaults and variables there are; its example is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.playbook import schema
from orchestrator.playbook.read import read_playbook
from orchestrator.playbook.relations import REPEATABLE
from orchestrator.playbook.variables import BUILT_IN
from tests.unit.test_inventory_page import default_text

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "playbooks.md").read_text(encoding="utf-8")


def table(body: str) -> dict[str, str]:
    """First column without its backquotes -> the second."""
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", body, flags=re.MULTILINE))


def operations() -> dict[str, str]:
    parts = re.split(r"^### `(.+)`$", PAGE.partition("## Variables")[0], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_operation_has_its_section() -> None:
    assert set(operations()) == set(schema.OPERATIONS)


@pytest.mark.parametrize("operation", schema.OPERATIONS)
def test_a_section_lists_the_options_and_defaults(operation: str) -> None:
    fields = schema.options_model(operation).model_fields
    assert table(operations()[operation]) == {name: default_text(field) for name, field in fields.items()}


def test_keys_of_every_step_what_may_be_repeated_and_variables() -> None:
    section = PAGE.partition("## Every step")[2].partition("## Operations")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(schema.COMMON)
    named = re.search(r"`retry` is for what is the same when it is done twice: ([^.]+)\.", section)
    assert named is not None and re.split(r",\s+", named[1].replace("\n", " ")) == list(REPEATABLE)
    assert list(table(PAGE.partition("## Variables")[2])) == list(BUILT_IN)


def test_the_example_is_read() -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    assert len(read_playbook(example, Path("/project/example.yaml")).all_steps) == 10
