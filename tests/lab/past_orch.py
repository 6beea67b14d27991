"""What goes on in a real lab's container, seen and done from the lab's host: without ssh, pct and orch."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orchestrator.lab.real import RealLab
from tests.lab.place import Place


def far(place: Place, *argv: str) -> str:
    """stdout of a command in the container; empty when it fails."""
    assert isinstance(place.lab, RealLab)
    done = place.lab.host_run(["lxc-attach", "-n", "200", "--clear-env", "--", *argv], check=False)
    return done.stdout.decode() if done.returncode == 0 else ""


def kill(place: Place, pid: int) -> None:
    assert far(place, "sh", "-c", f"kill -9 {pid} && echo sent") == "sent\n"


@dataclass(frozen=True)
class Training:
    run_id: str
    pid: int
    start_ticks: int
    wrapper_pid: int
    log: str

    @classmethod
    def of(cls, place: Place) -> Training | None:
        """The newest run's, once its wrapper has recorded that it runs."""
        text = far(place, "sh", "-c", f"cat $(ls -d {place.base}/runs/*/ | tail -n 1)wrapper.json")
        record = json.loads(text) if text else {}
        if not record.get("training"):
            return None
        process = record["training"]
        log = f"{place.base}/runs/{record['run_id']}/run.log"
        return cls(record["run_id"], process["pid"], process["start_ticks"], record["wrapper"]["pid"], log)

    def lives(self, place: Place) -> bool:
        fields = far(place, "cat", f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        return bool(fields) and fields[0] not in "ZX" and int(fields[19]) == self.start_ticks

    def log_size(self, place: Place) -> int:
        return int(far(place, "stat", "-c", "%s", self.log) or 0)


def agents(place: Place) -> list[int]:
    """In the container: each Python that came in from outside, so that its session's leader cannot be seen."""
    script = 'for p in /proc/[0-9]*; do read -r line <$p/stat 2>/dev/null && echo "$line"; done; true'
    found = []
    for line in far(place, "sh", "-c", script).splitlines():
        name, _, fields = line.rpartition(")")
        if fields.split()[3] == "0" and "python" in name:
            found.append(int(line.split()[0]))
    return found
