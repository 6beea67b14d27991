"""Stand-ins for the programs that a laptop cannot have: pct, nvidia-smi, NVML, a container's process 1."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
NVML = "libnvidia-ml.so.1"
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


def c_compiler() -> str | None:
    return next((found for name in ("cc", "gcc", "clang", "tcc") if (found := shutil.which(name))), None)


def build_nvml(folder: Path) -> Path:
    """The lab's libnvidia-ml.so.1 in folder, where it also looks for its orders. Raises OSError, CalledProcessError."""
    compiler = c_compiler()
    if compiler is None:
        raise FileNotFoundError("there is no C compiler to build the lab's NVML with")
    library = folder / NVML
    if not library.exists():
        draft = folder / f"{NVML}.draft"
        argv = [compiler, "-O1", "-fPIC", "-shared", "-o", str(draft), str(FOLDER / "nvml.c")]
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        draft.chmod(0o755)
        draft.replace(library)
    return library


def nvml_orders(state: Mapping[str, Any]) -> str:
    """gpu.txt: what gpu.json says (its keys: nvidia_smi.py), a line each, for who reads no JSON. It has `slow_ms`,
    and the modes `crash` and `unknown`, beside those."""
    lines = [f"{key} {state[key]}" for key in ("mode", "slow_ms") if key in state]
    lines += [f"lost {index}" for index in state.get("lost", [])]
    lines += [f"not_available {name}" for name in state.get("not_available", [])]
    lines += ["processes_hidden"] if state.get("processes_hidden") else []
    for index, device in enumerate(state.get("devices", [])):
        lines += [f"device {index} {name} {value}" for name, value in device.items()]
    lines += [f"devices {len(state['devices'])}"] if "devices" in state else []
    for process in state.get("processes", []):
        lines.append(f"process {process['gpu']} {process['pid']} {process.get('used_memory_mib') or 0}")
    return "".join(f"{line}\n" for line in lines)
