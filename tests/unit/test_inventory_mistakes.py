"""Every wrong inventory of tests/data/inventory is refused with the words at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import InventoryError
from orchestrator.inventory.read import read_inventory

CASES = sorted((Path(__file__).parent.parent / "data" / "inventory").glob("*.yaml"))


def refusal(text: str) -> str:
    """All that a person would be shown."""
    with pytest.raises(InventoryError) as caught:
        read_inventory(text, Path("/project/inventory.yaml"), Path("/home/me"))
    error = caught.value
    return f"{error.what}\n{error.evidence}\n{error.way_out}"


def test_there_are_cases() -> None:
    assert len(CASES) > 60


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_it_is_refused_with_its_words(case: Path) -> None:
    text = case.read_text(encoding="utf-8")
    expected = [line.removeprefix("# expected: ") for line in text.splitlines() if line.startswith("# expected: ")]
    assert expected
    shown = refusal(text)
    assert "inventory.yaml" in shown
    assert [words for words in expected if words not in shown] == [], shown


def test_one_mistake_shows_its_line() -> None:
    shown = refusal("hosts:\n  a: {address: x}\n  b: {address: x, port: 99999}\n")
    assert shown.splitlines()[:2] == [
        "/project/inventory.yaml:3:25: hosts.b.port: must be at most 65535, found 99999",
        "3 |   b: {address: x, port: 99999}",
    ]


def test_several_mistakes_come_at_once_in_the_order_of_the_file() -> None:
    shown = refusal("hosts:\n  a: {address: x, port: 0}\n  b: {address: y, prt: 1, user: off}\n")
    assert shown.startswith("/project/inventory.yaml has 3 mistakes; nothing was done\n")
    rows = [line for line in shown.splitlines() if line.startswith("inventory.yaml:")]
    assert [row.split(": ")[1] for row in rows] == ["hosts.a.port", "hosts.b.prt", "hosts.b.user"]


def test_very_many_mistakes_are_cut_short() -> None:
    shown = refusal("hosts:\n" + "".join(f"  h{number}: {{address: x, port: 0}}\n" for number in range(50)))
    assert "50 mistakes" in shown
    assert "and 40 more" in shown
