"""Inventory facts for tests that need some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.inventory.model import Caches, Expected, Host, Payload, Target, Topology

HOST = Host("gpu-box", "10.1.2.6", "auto", "root", None, None, None, None, 10.0, 5.0, 3, "none")
PAYLOAD = Payload(
    name="dflash",
    folder=Path("/somewhere/remote_payload"),
    command=("python", "train.py"),
    session="dflash",
    python="/root/venv/bin/python",
    environments={},
    environment=None,
    environment_check="warn",
    variables={},
    data=None,
    model=None,
    caches=Caches(None, None, None),
    topology=Topology(5, 3),
    devices=8,
    min_free_disk_gib=1.0,
    stop_timeout_s=120.0,
    settings={},
    exclude=(),
    expected=Expected(None, None, {}),
)
TARGET = Target("ct200", HOST, "pct", 200, "/root", None, PAYLOAD)


def payload(**changes: Any) -> Payload:
    return replace(PAYLOAD, **changes)
