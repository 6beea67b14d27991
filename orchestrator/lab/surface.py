"""What every lab can do, whatever it is made of. Tests and the command line know only this.

Rule: nothing here reaches past the lab's own folder, processes and namespaces.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.lab.doubles import nvml_orders
from orchestrator.lab.holder import GpuHolder
from orchestrator.lab.records import LabError, LabRecord

CONTAINER_ID = 200
NEIGHBOUR_ID = 201
"""Another container on the same GPUs; it runs only when asked for."""
FAR_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Lab(ABC):
    """A host that SSH reaches, and container 200 inside it."""

    def __init__(self, record: LabRecord) -> None:
        self.record = record
        self.folder = record.path

    def _note(self, **changes: Any) -> None:
        """Into the record, at once: what was made must be found again."""
        self.record = replace(self.record, **changes)
        self.record.save()

    # -- the controller's side ---------------------------------------------------------------------

    @abstractmethod
    def command(self, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        """A local argv that runs argv on the controller's side (start it with `environment()`)."""

    @abstractmethod
    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The caller's environment as it is on the controller's side."""

    @property
    @abstractmethod
    def inventory(self) -> Path | None:
        """An inventory made for this lab; None: the shipped one works unchanged."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the controller's side. env: added to the caller's. Raises subprocess.TimeoutExpired."""
        return subprocess.run(
            self.command(argv, cwd), cwd=cwd, env=self.environment(env), input=stdin, capture_output=True,
            timeout=timeout_s,
        )  # fmt: skip

    def popen(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command on the controller's side; options are subprocess.Popen's."""
        return subprocess.Popen(self.command(argv, cwd), cwd=cwd, env=self.environment(env), **options)

    # -- the far side ------------------------------------------------------------------------------

    @property
    def shared(self) -> Path:
        """The folder that the doubles take their orders from."""
        return self.folder / "shared"

    @property
    @abstractmethod
    def shared_seen_at(self) -> str:
        """Where host and containers see `shared`."""

    @abstractmethod
    def container_running(self, container: int = CONTAINER_ID) -> bool: ...

    @abstractmethod
    def start_container(self, container: int = CONTAINER_ID) -> None: ...

    @abstractmethod
    def stop_container(self, container: int = CONTAINER_ID) -> None:
        """Kill everything in it, as a power cut would."""

    @abstractmethod
    def far_command(self, argv: Sequence[str], container: int | None) -> list[str]:
        """A local argv that runs argv in a container; None: on the host."""

    @abstractmethod
    def link_down(self) -> None:
        """From now on no byte passes between controller and host; connections hang, nothing is closed."""

    @abstractmethod
    def link_up(self) -> None: ...

    @abstractmethod
    def hide_program(self, name: str) -> None:
        """Take a program out of the container's standard PATH."""

    @abstractmethod
    def show_program(self, name: str) -> None: ...

    @abstractmethod
    def down(self) -> None:
        """Remove all that the lab made, and nothing else. Also after any part of it has died."""

    def pct_starts(self) -> int:
        """How often `pct` was started so far."""
        return len(self.pct_log())

    def pct_log(self) -> list[str]:
        """`<Unix time> <arguments>`, one for each start."""
        try:
            text = (self.shared / "pct-starts").read_text(errors="replace")
        except FileNotFoundError:
            return []
        # An argument may hold line ends: a start begins where a time does.
        starts = re.findall(r"^\d{10}\.\d{9} .*\n(?:(?!\d{10}\.\d{9} ).*\n)*", text, re.MULTILINE)
        return [start.rstrip("\n") for start in starts]

    def set_pct_cost(self, cpu_seconds: float) -> None:
        """CPU time that each start of `pct` burns from now on; the real one takes about 0.5 s."""
        draft = self.shared / "pct-cost.draft"
        draft.write_text(f"{cpu_seconds}\n" if cpu_seconds > 0 else "")
        draft.replace(self.shared / "pct-cost")

    def set_gpus(self, state: Mapping[str, Any]) -> None:
        """What nvidia-smi and NVML say from now on; keys: doubles/nvidia_smi.py and nvml_orders. {}: eight H200, idle
        but for their holders."""
        for name, text in (("gpu.json", json.dumps(dict(state))), ("gpu.txt", nvml_orders(state))):
            draft = self.shared / f"{name}.draft"
            draft.write_text(text)
            draft.replace(self.shared / name)

    def hold_gpus(
        self, memory_mib: Mapping[int, int], *, container: int | None = CONTAINER_ID, deaf: bool = False
    ) -> GpuHolder:
        """Start a process that uses these GPUs, in a container or (None) on the host. deaf: TERM does not end it."""
        words = [*(["--deaf"] if deaf else []), *(f"{gpu}={mib}" for gpu, mib in memory_mib.items())]
        program = [str(Path(sys.executable).resolve()), "-IS", f"{self.shared_seen_at}/hold_gpu.py"]
        argv = self.far_command([*program, "--until-eof", *words], container)
        return GpuHolder.start(argv, FAR_ENVIRONMENT)


def inherited(record: LabRecord, extra: Mapping[str, str] | None) -> dict[str, str]:
    """The caller's environment without keys and runtime folders that belong to its own world."""
    environment = dict(os.environ)
    # An agent would offer the person's own keys; a shared runtime folder would let two labs share ssh masters.
    environment.pop("SSH_AUTH_SOCK", None)
    environment |= {
        "ORCH_LAB": record.id,
        "ORCH_LAB_RECORD": str(record.file),
        "XDG_RUNTIME_DIR": f"{record.folder}/run",
        "XDG_STATE_HOME": f"{record.folder}/state",
        "XDG_DATA_HOME": f"{record.folder}/data",
    }
    return environment | dict(extra or {})


def wait_until(true: Callable[[], bool], what: str, *, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise LabError(f"the lab waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.01)


def project_path() -> str:
    """PYTHONPATH for a helper process: this project, then what the caller has."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(Path(__file__).parents[2]), *([given] if given else [])])


def interpreter_folders(venv: Path) -> list[Path]:
    """What must be seen for this interpreter and venv's to run in a container."""
    found = [venv]
    for interpreter in (Path(sys.executable), venv / "bin/python"):
        if interpreter.exists():
            found.append(interpreter.resolve().parents[1])
    return [path for path in dict.fromkeys(found) if path.exists()]
