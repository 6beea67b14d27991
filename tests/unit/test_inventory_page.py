"""docs/inventory.md lists exactly the keys and defaults of the schema, and its example is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.agent.far.scan import is_excluded
from orchestrator.inventory import schema
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.read import read_inventory

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "inventory.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[BaseModel]] = {
    "The file": schema.InventoryEntry,
    "A host": schema.HostEntry,
    "`keepalive`": schema.KeepaliveEntry,
    "A container": schema.ContainerEntry,
    "A payload": schema.PayloadEntry,
    "`environments`": schema.EnvironmentEntry,
    "`topology`": schema.TopologyEntry,
    "`caches`": schema.CachesEntry,
    "`expected`": schema.ExpectedEntry,
    "`tokens_per_s`": schema.RangeEntry,
}


def sections() -> dict[str, dict[str, str]]:
    """Heading -> key -> default, as the page says."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return {
        heading: dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", body, flags=re.MULTILINE))
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None or value in ([], {}):
        return "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_every_part_has_its_section() -> None:
    assert list(sections()) == list(SECTIONS)
    entries = {
        name for name, value in vars(schema).items() if name.endswith("Entry") and value.__module__ == schema.__name__
    }
    assert entries - {"Entry"} == {model.__name__ for model in SECTIONS.values()}


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_lists_the_keys_and_defaults(heading: str) -> None:
    expected = {name: default_text(field) for name, field in SECTIONS[heading].model_fields.items()}
    assert sections()[heading] == expected


def test_the_example_is_read() -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    assert list(read_inventory(example, Path("/project/inventory.yaml"), Path("/home/me")).targets) == ["ct200"]


def test_a_run_made_by_hand_in_the_shipped_payload_does_not_travel() -> None:
    (target,) = load_inventory(Path(__file__).resolve().parents[2] / "inventory.yaml").targets.values()
    assert target.payload is not None
    assert is_excluded("runs", target.payload.exclude) and not is_excluded("package/runs", target.payload.exclude)
