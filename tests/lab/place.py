"""A payload, an inventory and a root of its own on a lab's container: what one test of the verbs works with."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from orchestrator.lab.holder import GpuHolder
from orchestrator.lab.surface import CONTAINER_ID, Lab

PROJECT = Path(__file__).resolve().parents[2]

FOREIGN = '''\
"""A training script that knows nothing of orch."""
import sys
import time

steps, pause_s, fail = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]


def inner(step):
    if fail and step == steps:
        raise ValueError("the loss is nan: ü€")


def main():
    for step in range(1, steps + 1):
        inner(step)
        print(f"step {step} loss {1 / step:.4f} 12.5 Ktok/s")
        time.sleep(pause_s)


main()
'''


class Place:
    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self.lab = lab
        self.folder = folder
        self.holders: list[GpuHolder] = []
        self.payload = folder / "payload"
        self.payload.mkdir()
        (self.payload / "foreign.py").write_text(FOREIGN)
        self.inventory = folder / "inventory.yaml"
        shipped = yaml.safe_load((lab.inventory or PROJECT / "inventory.yaml").read_text())
        self._hosts: dict[str, Any] = shipped["hosts"]
        self._host = next(iter(self._hosts.values()))
        self._target = self._host["containers"]["ct200"]
        self._target["root"] = f"{self._target['root'].rstrip('/')}/{name}"
        self._target["payload"] = "foreign"
        self.base = f"{self._target['root']}/orch"
        self.write(command=["python3", "foreign.py", "3", "0.05"])

    def write(
        self, *, host: Mapping[str, Any] | None = None, target: Mapping[str, Any] | None = None, **payload: Any
    ) -> None:
        """The inventory anew: keys of the payload, and changes to host and target."""
        hosts = copy.deepcopy(self._hosts)
        name = next(iter(hosts))
        hosts[name].update(host or {})
        hosts[name]["containers"]["ct200"].update(target or {})
        foreign = {"folder": str(self.payload), **payload}
        self.inventory.write_text(yaml.safe_dump({"hosts": hosts, "payloads": {"foreign": foreign}}))

    def orch(self, *words: str, timeout_s: float = 60.0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return self.lab.run(
            self.argv(*words), cwd=self.folder, env=self.environment(), timeout_s=timeout_s, stdin=stdin
        )

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return self.lab.popen(self.argv(*words), cwd=self.folder, env=self.environment(), **options)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "orchestrator", words[0], "-i", str(self.inventory), *words[1:]]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(PROJECT)}

    def ok(self, *words: str, timeout_s: float = 60.0) -> str:
        """stdout of an orch command that must work."""
        done = self.orch(*words, timeout_s=timeout_s)
        assert done.returncode == 0, f"orch {' '.join(words)}: {done.returncode}\n{said(done)}"
        return done.stdout.decode()

    def status(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.ok("status", "--json"))
        return record

    def inside(self, *argv: str) -> str:
        done = self.orch("exec", "--", *argv)
        assert done.returncode == 0, said(done)
        return done.stdout.decode()

    def hold_gpus(
        self, memory_mib: Mapping[int, int], *, container: int | None = CONTAINER_ID, deaf: bool = False
    ) -> GpuHolder:
        """`Lab.hold_gpus`, ended with the place."""
        holder = self.lab.hold_gpus(memory_mib, container=container, deaf=deaf)
        self.holders.append(holder)
        return holder

    def clean(self) -> None:
        for holder in self.holders:
            holder.end()
        self.orch("stop", "--kill", "--timeout", "0")
        shutil.rmtree(self.folder, ignore_errors=True)


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stdout + done.stderr).decode(errors="replace")
