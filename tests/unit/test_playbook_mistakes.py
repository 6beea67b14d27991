"""Every wrong playbook of tests/data/playbooks/wrong is refused with the words at its end: line and suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.main import main
from orchestrator.errors import InventoryError
from orchestrator.playbook.read import read_playbook

CASES = sorted((Path(__file__).parent.parent / "data" / "playbooks" / "wrong").glob("*.yaml"))


def refusal(text: str) -> str:
    """All that a person would be shown."""
    with pytest.raises(InventoryError) as caught:
        read_playbook(text, Path("/project/wrong.yaml"))
    error = caught.value
    return f"{error.what}\n{error.evidence}\n{error.way_out}"


def test_there_are_thirty_and_more() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_it_is_refused_with_its_words(case: Path) -> None:
    text = case.read_text(encoding="utf-8")
    expected = [line.removeprefix("# expected: ") for line in text.splitlines() if line.startswith("# expected: ")]
    assert expected
    shown = refusal(text)
    assert [words for words in expected if words not in shown] == [], shown


def test_all_mistakes_come_at_once_in_the_order_of_the_file() -> None:
    shown = refusal("vars: {a: 1}\nsteps:\n  - deploy: {rf: x}\n    when: ${b}\n  - launch: {settings: 5}\n  - gate\n")
    rows = [line.split(": ")[1] for line in shown.splitlines() if line.startswith("wrong.yaml:")]
    assert rows == ["steps[0].deploy.rf", "steps[0].when", "steps[1].launch.settings"]


def test_nothing_is_begun_and_nothing_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    touched = tmp_path / "touched"
    playbook = tmp_path / "wrong.yaml"
    playbook.write_text(f"steps:\n  - run: {{argv: [touch, {touched}], where: controller}}\n  - lunch\n")
    inventory = Path(__file__).resolve().parents[2] / "inventory.yaml"
    assert main(["play", "-i", str(inventory), str(playbook)]) == 3
    assert "did you mean `launch`?" in capsys.readouterr().err
    assert not touched.exists() and not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "written", ["webhook: https://h/S3CR3T", 'webhook: "https://h/S3CR3T"', "webhok: env:A, webhook: S3CR3T"]
)
def test_an_address_in_a_playbook_is_not_repeated(written: str) -> None:
    shown = refusal(f"steps: [deploy]\nalways:\n  - notify: {{{written}}}\n")
    assert "S3CR3T" not in shown and "(not shown)" in shown


def test_a_playbook_for_an_inventory_of_several_is_told_where_to_name_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.yaml").write_text(
        "hosts: {a: {address: 127.0.0.1, containers: {c: {id: 200, payload: p}, d: {id: 201, payload: p}}}}\n"
        "payloads: {p: {folder: ., command: [x]}}\n"
    )
    (tmp_path / "short.yaml").write_text("steps:\n  - deploy\n")
    assert main(["play", "--dry-run", "-i", str(tmp_path / "two.yaml"), str(tmp_path / "short.yaml")]) == 2
    said = capsys.readouterr().err
    assert "several targets, and none was named" in said and "write `target: NAME` at the playbook's top" in said
    (tmp_path / "none.yaml").write_text("hosts: {a: {address: 127.0.0.1}}\n")
    assert main(["play", "--dry-run", "-i", str(tmp_path / "none.yaml"), str(tmp_path / "short.yaml")]) == 2
    said = capsys.readouterr().err
    assert "has no target" in said and "-> give a host `containers:`" in said
