"""The inventory that a lab is made with. Reads the shipped one."""

from __future__ import annotations

from pathlib import Path

import yaml

from orchestrator.lab.embedded_inventory import lab_inventory

SHIPPED = Path(__file__).resolve().parents[2] / "inventory.yaml"


def test_a_lab_expects_no_rate_of_this_machine_and_keeps_the_rest(tmp_path: Path) -> None:
    raw = yaml.safe_load(SHIPPED.read_text())
    assert raw["payloads"]["dflash"]["expected"]["tokens_per_s"]
    raw["payloads"]["dflash"]["expected"]["hashes"] = {"train.py": "md5:" + "0" * 32}
    source = tmp_path / "inventory.yaml"
    for text, kept in ((SHIPPED.read_text(), None), (yaml.safe_dump(raw), {"hashes": {"train.py": "md5:" + "0" * 32}})):
        source.write_text(text)
        payload = yaml.safe_load(lab_inventory(source, 200, {"address": "127.0.0.1"}, {}, {"python": "/p"}))["payloads"]
        assert payload["dflash"].get("expected") == kept
        assert payload["dflash"]["python"] == "/p" and payload["dflash"]["topology"] == {"targets": 5, "drafters": 3}
