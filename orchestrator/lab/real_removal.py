"""Taking a real lab down, whole or in pieces.

Rule: only what the record names: its processes (if still themselves), members of its own cgroup, its own folder.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from orchestrator.lab.records import (
    REAL_LABS,
    RECORD_NAME,
    LabError,
    LabProcess,
    LabRecord,
    boot_id,
    end_processes,
    start_ticks,
)

# In a mount namespace of its own: kill what is left in the lab's cgroup, wait for it, remove the folders.
CGROUP_SCRIPT = """
mount -t cgroup2 none "$1" || exit
cd "$1/$2" 2>/dev/null || exit 0
tries=0
while grep -q 'populated 1' cgroup.events; do
    echo 1 > cgroup.kill || exit
    tries=$((tries + 1))
    [ $tries -lt 400 ] || { echo "processes of $2 cannot be killed" >&2; exit 1; }
    sleep 0.05
done
find . -depth -mindepth 1 -type d -exec rmdir {} \\; || exit
cd "$1" && rmdir "$2"
"""
SSH_HOME_MARK = "made-ssh-folder"


def remove(record: LabRecord) -> None:
    """Raises LabError, leaving the folder (and so the record), when something will not go."""
    if record.boot_id == boot_id():
        with pinned_namespace(record) as inode:
            end_processes(record.processes)
            end_visitors(record, inode)
        if record.cgroup:
            remove_cgroup(record.cgroup)
    refuse_mounts_below(record.path)
    with labs_lock():
        shutil.rmtree(record.path)
        forget_ssh_home()


@contextmanager
def pinned_namespace(record: LabRecord) -> Iterator[int | None]:
    """The inode of the controller's network namespace, kept from being given to another; None: it may have been."""
    controller = next((process for process in record.processes if process.role == "controller"), None)
    with ExitStack() as stack:
        inode = None
        if controller is not None:
            with suppress(OSError):  # it is gone, or going
                handle = stack.enter_context(Path(f"/proc/{controller.pid}/ns/net").open("rb"))
                inode = os.fstat(handle.fileno()).st_ino if controller.alive() else None
        yield inode


def end_visitors(record: LabRecord, pinned: int | None) -> None:
    """KILL what is still in the controller's namespace (a forgotten ssh master), but no ancestor of the caller.

    Without the pinned inode, only what also has this lab in its environment: the kernel reuses the numbers.
    """
    spared = ancestors()
    inodes = {pinned} if pinned is not None else set(record.network_namespace_inodes)
    mark = None if pinned is not None else f"ORCH_LAB_RECORD={record.file}".encode()
    deadline = time.monotonic() + 20
    while visitors := [process for process in inside(inodes, mark) if process.pid not in spared]:
        if time.monotonic() > deadline:
            raise LabError("processes in the lab's network namespaces cannot be killed", evidence=str(visitors))
        for process in visitors:
            process.send(signal.SIGKILL)
        time.sleep(0.005)


def inside(inodes: Collection[int], mark: bytes | None) -> Iterator[LabProcess]:
    """Processes in these network namespaces; with mark, those that have it in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        ticks = start_ticks(int(folder.name))
        try:
            if ticks is None or (folder / "ns/net").stat().st_ino not in inodes:
                continue
            if mark is not None and mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
        except OSError:
            continue
        yield LabProcess("visitor", int(folder.name), ticks)


def ancestors() -> set[int]:
    """This process, its parent and so on."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def remove_cgroup(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="orch-lab-cgroup-") as mount_point:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", CGROUP_SCRIPT, "sh", mount_point, name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode != 0:
        raise LabError(f"the lab's cgroup {name} cannot be removed", evidence=done.stderr)


def refuse_mounts_below(folder: Path) -> None:
    """Deleting through somebody's mount would delete what is mounted."""
    below = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if Path(line.split()[4]).is_relative_to(folder)
    ]  # fmt: skip
    if below:
        raise LabError(f"something is mounted below {folder}; nothing was deleted there", evidence="\n".join(below))


@contextmanager
def labs_lock() -> Iterator[None]:
    """Making and removing ~/.ssh is the one thing that labs share."""
    REAL_LABS.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (REAL_LABS / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def make_ssh_home() -> Path:
    """root's ~/.ssh, which must exist to be covered. An empty one is made if need be, and removed with the last lab."""
    folder = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    with labs_lock():
        if not folder.exists():
            folder.mkdir(mode=0o700)
            (REAL_LABS / SSH_HOME_MARK).touch()
    return folder


def forget_ssh_home() -> None:
    mark = REAL_LABS / SSH_HOME_MARK
    if not mark.exists() or any(REAL_LABS.glob("*/" + RECORD_NAME)):
        return
    folder = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    mark.unlink()
