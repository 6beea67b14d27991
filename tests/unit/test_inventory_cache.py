"""What is kept of an inventory never changes what a command sees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import InventoryError
from orchestrator.inventory import cache, read, snapshot
from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Inventory

FULL = """\
hosts:
  one:
    address: 10.0.0.1
    user: me
    port: 2222
    identity_file: ~/.ssh/key
    become: sudo
    containers:
      c1: {id: 101, root: /data, python: /opt/python, payload: p}
      c2: {id: 102}
  two: {transport: local, root: /work, payload: p}
payloads:
  p:
    folder: code
    command: [python, train.py, "a b", "\\u00e9"]
    session: s
    environments: {train: {lock: locks/train.txt, python: python3.12, indexes: ["https://packages.example/simple"]}}
    variables: {TOKEN: "secret"}
    settings: {a: 1, b: 1.5, c: true, d: text}
    topology: {targets: 1, drafters: 2}
    exclude: ["*.bin"]
    expected: {tokens_per_s: {min: 10, max: 20}}
groups:
  all_c: [c1, c2]
"""


@pytest.fixture(name="file")
def inventory_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    path = tmp_path / "inventory.yaml"
    path.write_text(FULL)
    return path


@pytest.fixture(name="readings")
def count_readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """One entry for each time that the file was really read."""
    real, seen = read.read_inventory, []

    def counting(text: str, path: Path, home: Path) -> Inventory:
        seen.append(path)
        return real(text, path, home)

    monkeypatch.setattr(read, "read_inventory", counting)
    return seen


def kept_files(folder: Path) -> list[Path]:
    return sorted((folder / "orch").glob("*"))


def test_the_second_time_gives_the_same_without_reading(file: Path, readings: list[Path]) -> None:
    first = load_inventory(file)
    second = load_inventory(file)
    assert second == first
    assert second.targets["c1"].base == "/data/orch"
    assert list(second.targets) == list(first.targets)
    payload = second.payloads["p"]
    assert [type(value) for value in payload.settings.values()] == [int, float, bool, str]
    assert len(readings) == 1


def test_it_is_private(file: Path, tmp_path: Path) -> None:
    load_inventory(file)
    folder = tmp_path / "home" / ".cache" / "orch"
    (kept,) = kept_files(folder.parent)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600


def test_an_edit_is_seen_even_with_the_same_size_and_time(file: Path) -> None:
    load_inventory(file)
    times = file.stat()
    file.write_text(FULL.replace("10.0.0.1", "10.0.0.9"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert load_inventory(file).hosts["one"].address == "10.0.0.9"


def test_a_mistake_is_told_however_good_the_file_was(file: Path) -> None:
    load_inventory(file)
    file.write_text(FULL.replace("port: 2222", "port: no"))
    with pytest.raises(InventoryError, match="port"):
        load_inventory(file)


def test_another_home_is_another_inventory(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    load_inventory(file)
    monkeypatch.setenv("HOME", "/home/other")
    assert load_inventory(file).hosts["one"].identity_file == Path("/home/other/.ssh/key")


def test_the_same_text_elsewhere_has_other_folders(file: Path, tmp_path: Path) -> None:
    load_inventory(file)
    other = tmp_path / "there"
    other.mkdir()
    (other / "inventory.yaml").write_text(FULL)
    assert load_inventory(other / "inventory.yaml").payloads["p"].folder == other / "code"


@pytest.mark.parametrize(
    "spoil", [lambda data: b"", lambda data: data[:-9], lambda data: data.replace(b"2222", b"2223")]
)
def test_a_damaged_one_is_ignored_and_replaced(file: Path, tmp_path: Path, readings: list[Path], spoil: object) -> None:
    assert callable(spoil)
    expected = load_inventory(file)
    (kept,) = kept_files(tmp_path / "home" / ".cache")
    whole = kept.read_bytes()
    kept.write_bytes(spoil(whole))
    assert load_inventory(file) == expected
    assert kept.read_bytes() == whole
    assert len(readings) == 2


def test_one_that_others_can_write_is_ignored(file: Path, tmp_path: Path, readings: list[Path]) -> None:
    load_inventory(file)
    (kept,) = kept_files(tmp_path / "home" / ".cache")
    kept.chmod(0o620)
    load_inventory(file)
    kept.parent.chmod(0o770)
    load_inventory(file)
    assert len(readings) == 3


def test_nowhere_to_keep_it(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "no-folder"))
    assert load_inventory(file) == load_inventory(file)


def test_what_would_come_back_changed_is_not_kept(file: Path, tmp_path: Path) -> None:
    values = snapshot.plain(load_inventory(file))
    values["payloads"]["p"]["settings"]["odd"] = float("nan")
    odd = snapshot.restore(values)
    cache.keep(odd, "text", tmp_path / "odd.yaml", tmp_path / "home")
    assert cache.recall("text", tmp_path / "odd.yaml", tmp_path / "home") is None
