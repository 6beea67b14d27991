"""Tests that need a CUDA device, and of packages only torch, transformers and pytest:

python -m pytest --confcutdir tests/gpu -m gpu tests/gpu
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).resolve().parents[2]
for folder in ("remote_payload", "tests/payload"):
    sys.path.insert(0, str(PROJECT / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_terminal_summary(terminalreporter: object) -> None:
    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(0)
        line = f"torch {torch.__version__}, CUDA {torch.version.cuda}, {device.name}, Python {sys.version.split()[0]}"
        terminalreporter.write_line(line)  # type: ignore[attr-defined]
