"""A lab's own record (lab.json) and the identity of the processes that it names.

Rule: a process is only ever (pid, start time) of this boot; a bare pid is never trusted.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.errors import OrchError, UsageError

SCHEMA_VERSION = 1
RECORD_NAME = "lab.json"
REAL_LABS = Path("/var/lib/orch-lab")
LabKind = Literal["real", "embedded"]


class LabError(OrchError):
    """The lab could not be made, entered or removed."""


def embedded_labs() -> Path:
    """Below /tmp, whatever TMPDIR says: paths of Unix sockets may only be about 100 bytes long."""
    return Path(f"/tmp/orch-lab-{os.getuid()}")


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class LabProcess:
    """One process of a lab. start_ticks: field 22 of /proc/<pid>/stat."""

    role: str
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, role: str, pid: int) -> LabProcess:
        found = start_ticks(pid)
        if found is None:
            raise LabError(f"the lab's {role} process (pid {pid}) ended at once")
        return cls(role, pid, found)

    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Signal it if it is still the same process; the pidfd closes the gap between look and shot."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)


def start_ticks(pid: int) -> int | None:
    """None when there is no such process, or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def end_processes(processes: Iterable[LabProcess], *, timeout_s: float = 20.0) -> None:
    """KILL each that is still itself and wait until it is gone. Raises LabError for one that will not go."""
    processes = list(processes)
    for process in processes:
        process.send(signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    for process in processes:
        while process.alive():
            if time.monotonic() > deadline:
                raise LabError(f"the lab's {process.role} process (pid {process.pid}) cannot be killed")
            time.sleep(0.005)


@dataclass(frozen=True)
class LabRecord:
    """What lab.json holds."""

    kind: LabKind
    id: str
    folder: str
    boot_id: str
    created_s: float
    """Unix time."""
    network_namespace_inodes: tuple[int, ...] = ()
    """Real lab: [host, controller]; empty while the lab is being made and in an embedded lab."""
    processes: tuple[LabProcess, ...] = ()
    cgroup: str | None = None
    """Name of the lab's folder in the cgroup2 hierarchy."""
    owner: LabProcess | None = None
    """The process that a lab under test, or one being made, lives for; None: it lives until `down`."""
    isolation: str = ""
    """What the container's processes are kept apart by, for `status`."""
    port: int | None = None
    mark: int | None = None
    """Embedded lab: the limit that its processes are known by; the container's have one less."""
    schema: int = SCHEMA_VERSION

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def file(self) -> Path:
        return self.path / RECORD_NAME

    def process(self, role: str) -> LabProcess:
        for process in self.processes:
            if process.role == role:
                return process
        raise LabError(f"lab {self.id} has no {role} process", way_out=f"orch lab down --lab {self.id}")

    def alive(self) -> bool:
        """Whether every process it stands on is there."""
        return self.boot_id == boot_id() and bool(self.processes) and all(p.alive() for p in self.processes)

    def stale(self) -> bool:
        """Left behind: of an earlier boot, of an owner that is gone, or with its processes dead."""
        if self.boot_id != boot_id() or (self.owner is not None and not self.owner.alive()):
            return True
        return bool(self.processes) and not self.alive()

    def save(self) -> None:
        draft = self.file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
        draft.replace(self.file)


def read_record(file: Path) -> LabRecord:
    try:
        raw = json.loads(file.read_text())
        processes = tuple(LabProcess(**entry) for entry in raw.pop("processes"))
        owner = raw.pop("owner")
        inodes = tuple(raw.pop("network_namespace_inodes"))
        return LabRecord(
            **raw,
            network_namespace_inodes=inodes,
            processes=processes,
            owner=LabProcess(**owner) if owner else None,
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LabError(f"{file} is not a lab's record", evidence=str(error)) from error


def new_record(kind: LabKind, parent: Path) -> LabRecord:
    """Make the folder of a new lab (mode 0700) with a record that names this process as its maker."""
    parent.mkdir(mode=0o700 if kind == "embedded" else 0o755, parents=True, exist_ok=True)
    seen = parent.lstat()
    if seen.st_uid != os.getuid() or not stat.S_ISDIR(seen.st_mode):
        raise LabError(f"{parent} belongs to somebody else", way_out="remove it, or ask its owner to")
    identity = secrets.token_hex(3)
    folder = parent / identity
    folder.mkdir(mode=0o700)
    owner = LabProcess.of("maker", os.getpid())
    record = LabRecord(kind, identity, str(folder), boot_id(), time.time(), owner=owner)
    record.save()
    return record


def settled(record: LabRecord, *, bound: bool) -> LabRecord:
    """The record of a lab that is up. bound: it is left over once this process is gone (tests)."""
    ready = record if bound else replace(record, owner=None)
    ready.save()
    return ready


def find_labs() -> Iterator[LabRecord]:
    """The caller's labs, oldest first."""
    folders = [REAL_LABS, embedded_labs()]
    found: list[LabRecord] = []
    for folder in folders:
        try:
            files = list(folder.glob("*/" + RECORD_NAME))
        except PermissionError:
            continue
        for file in files:
            try:
                found.append(read_record(file))
            except LabError:
                if file.exists() and os.access(file, os.R_OK):
                    raise
    yield from sorted(found, key=lambda record: record.created_s)


def choose_lab(wanted: str | None = None, *, kind: LabKind | None = None) -> LabRecord:
    """The lab named by wanted or ORCH_LAB, or the only one. Raises UsageError when that is not one lab."""
    wanted = wanted or os.environ.get("ORCH_LAB")
    labs = [lab for lab in find_labs() if kind is None or lab.kind == kind]
    if wanted:
        labs = [lab for lab in labs if lab.id == wanted]
        if not labs:
            raise UsageError(f"there is no lab {wanted}", way_out="orch lab status")
        return labs[0]
    if not labs:
        raise UsageError("no lab is up", way_out="orch lab up")
    if len(labs) > 1:
        names = ", ".join(f"{lab.id} ({lab.kind})" for lab in labs)
        raise UsageError("several labs are up", evidence=names, way_out=f"choose one: --lab {labs[-1].id}")
    return labs[0]
