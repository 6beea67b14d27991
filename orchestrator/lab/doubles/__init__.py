"""Stand-ins for the programs that a laptop cannot have: pct, nvidia-smi, a container's process 1."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
GPU_FILES = (*(f"nvidia{index}" for index in range(8)), "nvidiactl", "nvidia-uvm")
"""A process of the lab uses GPU i by holding nvidia<i> open; the descriptor's position is its memory in MiB."""


def install(folder: Path, *, backend: Literal["lxc", "embedded"], seen_at: str, python: Path) -> None:
    """Put the doubles into folder, which they will see at seen_at, beside the files that they take orders from.

    python: the interpreter they run under, its symlinks resolved (the usual names may be hidden from a container).
    """
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "pct-starts").touch(mode=0o600)
    for name in ("dev", "driver-proc", "gpus"):
        (folder / name).mkdir()
    for device in GPU_FILES:
        (folder / "gpus" / device).touch()
        (folder / "gpus" / device).chmod(0o666)
    for name in ("pid1.py", "container.py", "hold_gpu.py"):
        shutil.copyfile(FOLDER / name, folder / name)
    shutil.copyfile(FOLDER / f"{backend}.sh", folder / "pct-backend")
    for name, source in (("pct", "pct.sh"), ("nvidia-smi", "nvidia_smi.py")):
        text = (FOLDER / source).read_text()
        quoted = shlex.quote if source.endswith(".sh") else str
        text = text.replace("@LAB@", quoted(seen_at)).replace("@PYTHON@", quoted(str(python)))
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
