"""The lab's NVML, outside a lab: its library in a folder, and its orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab import doubles


class NvmlDouble:
    def __init__(self, folder: Path) -> None:
        if doubles.c_compiler() is None:
            pytest.skip("no C compiler")
        self.folder = folder
        (folder / "gpus").mkdir()
        for name in doubles.GPU_FILES:
            (folder / "gpus" / name).touch()
        self.library = str(doubles.build_nvml(folder))

    def set(self, **state: Any) -> None:
        draft = self.folder / "draft"
        draft.write_text(doubles.nvml_orders(state))
        draft.replace(self.folder / "gpu.txt")
