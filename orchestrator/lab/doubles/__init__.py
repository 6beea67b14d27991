"""Stand-ins for the programs that a laptop cannot have: pct, nvidia-smi, a container's process 1."""

from __future__ import annotations

import shlex
from pathlib import Path


def pct_script(lab: str, python: Path) -> str:
    """The text of `pct`. lab: the folder, as pct will see it, that holds its start log and its cost."""
    text = (Path(__file__).parent / "pct.sh").read_text()
    return text.replace("@LAB@", shlex.quote(lab)).replace("@PYTHON@", shlex.quote(str(python)))
