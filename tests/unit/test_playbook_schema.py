"""docs/playbook.schema.json is what the models say, and takes every shipped playbook."""

from __future__ import annotations

from pathlib import Path

from orchestrator.playbook import registry, relations, schema, variables
from orchestrator.playbook.json_schema import schema_text

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_is_up_to_date() -> None:
    # python -m orchestrator play --schema > docs/playbook.schema.json
    assert (ROOT / "docs" / "playbook.schema.json").read_text(encoding="utf-8") == schema_text()


def test_lists_of_operations_name_operations() -> None:
    known = set(schema.OPERATIONS)
    named = (relations.REPEATABLE, relations.AFTER_FAILURE, relations.OF_A_RUN, relations.OF_ONE_TARGET)
    assert [name for names in (*named, variables.SETS) for name in names if name not in known] == []
    assert set(registry.DOING) <= known
    assert {name for names in variables.SETS.values() for name in names} <= set(variables.BUILT_IN)
