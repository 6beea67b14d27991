"""Process 1 of a real lab's host: makes the namespaces, the two root file systems and the wire, then reaps.

Rule: everything is made inside namespaces that die with this process; the machine's own mounts, links and
process table are never touched. Run as `python -m orchestrator.lab.real_namespaces <plan.json>`; says one JSON
line on stdout: the pids as the machine sees them, or what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from orchestrator.lab.doubles.pid1 import main as reap_until_told

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
CGROUP_SCRIPT = 'mount -t cgroup2 none "$1" && mkdir -p "$1/$2/root" && echo "$3" > "$1/$2/root/cgroup.procs"'


@dataclass(frozen=True)
class Plan:
    """Absolute paths on the machine."""

    folder: str
    cgroup: str
    host_name: str
    host_address: str
    controller_address: str
    prefix_length: int
    ssh_home: str
    """The controller's ~/.ssh: the lab's own folder is mounted over it."""
    shared_at: str
    """Where <folder>/shared appears in the host and in the container."""
    container_roots: dict[str, str]
    """Folder of a container below the lab's -> where its root appears in the host."""
    binds: tuple[str, ...]
    """Paths that the host's root must show although they are hidden or on another file system."""

    @classmethod
    def read(cls, file: Path) -> Plan:
        raw = json.loads(file.read_text())
        return cls(**{**raw, "binds": tuple(raw["binds"])})

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")


def unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(ctypes.c_int(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def do(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")


def main() -> int:
    plan = Plan.read(Path(sys.argv[1]))
    answer_read, answer_write = os.pipe()
    try:
        # Its own mount of the hierarchy, gone with the shell: works whatever the machine has in /sys/fs/cgroup.
        mount_point = plan.folder + "/cgroup"
        do("unshare", "--mount", "--propagation", "private", "sh", "-c", CGROUP_SCRIPT, "sh", mount_point, plan.cgroup,
           str(os.getpid()))  # fmt: skip
        unshare(CLONE_NEWPID)
    except (OSError, RuntimeError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    init = os.fork()
    if init == 0:
        os.close(answer_read)
        run_host(plan, answer_write)
    os.close(answer_write)
    with os.fdopen(answer_read) as stream:
        answer = json.loads(stream.readline() or '{"error": "process 1 of the lab ended without a word"}')
    sys.stdout.write(json.dumps({**answer, "init": init}) + "\n")
    return 1 if "error" in answer else 0


def run_host(plan: Plan, answer_fd: int) -> NoReturn:
    code = 1
    try:
        answer: dict[str, object] = {"controller": make_world(plan, answer_fd)}
        code = 0
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(answer_fd, json.dumps(answer).encode() + b"\n")
    os.close(answer_fd)
    if code == 0:
        reap_until_told()
    os._exit(code)


def make_world(plan: Plan, answer_fd: int) -> int:
    """Returns the controller's pid as the machine sees it."""
    os.setsid()
    log = os.open(plan.folder + "/namespaces.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    go_read, go_write = os.pipe()
    said_read, said_write = os.pipe()
    controller = os.fork()
    if controller == 0:
        os.close(go_write)
        os.close(said_read)
        os.close(answer_fd)
        run_controller(plan, go_read, said_write)
    os.close(go_read)
    os.close(said_write)
    machine_pid = int(listen(said_read))
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP)
    do("mount", "--make-rprivate", "/")
    do("ip", "link", "set", "lo", "up")
    # The kernel reads this pid in the namespace of the one who asks: the controller's number in here.
    do("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(controller))
    do("ip", "address", "add", f"{plan.host_address}/{plan.prefix_length}", "dev", "eth0")
    do("ip", "link", "set", "eth0", "up")
    os.write(go_write, b"wired\n")
    listen(said_read)
    make_roots(plan)
    enter_root(plan, controller)
    return machine_pid


def listen(descriptor: int) -> str:
    word = os.read(descriptor, 4096).decode()
    if not word or word.startswith("error"):
        raise RuntimeError(f"the controller's namespace: {word or 'ended without a word'}")
    return word.strip()


def run_controller(plan: Plan, go_read: int, said_write: int) -> NoReturn:
    """Keeps the controller's namespaces alive; commands enter them from outside."""
    try:
        # This /proc is still the machine's, so this is the pid that others will know it by.
        machine_pid = str(Path("/proc/self").readlink())
        unshare(CLONE_NEWNS | CLONE_NEWNET)
        do("mount", "--make-rslave", "/")
        do("mount", "--bind", plan.folder + "/ssh", plan.ssh_home)
        os.write(said_write, machine_pid.encode() + b"\n")
        if os.read(go_read, 16) == b"":
            os._exit(1)
        do("ip", "link", "set", "lo", "up")
        do("ip", "address", "add", f"{plan.controller_address}/{plan.prefix_length}", "dev", "eth0")
        do("ip", "link", "set", "eth0", "up")
        os.write(said_write, b"ready\n")
        os.close(said_write)
    except BaseException as error:
        os.write(said_write, f"error: {error}\n".encode())
        os._exit(1)
    while True:
        signal.pause()


def overlay(lab: str, name: str, at: str) -> None:
    """Mount the machine's root with the lab's changes over it. Raises RuntimeError."""
    folder = f"{lab}/{name}"
    try:
        mount_overlay(folder, at)
    except RuntimeError:
        # The lab's own file system cannot be an upper layer (an overlay itself, or a network's): memory can.
        memory = folder + "/memory"
        do("mkdir", memory)
        do("mount", "-t", "tmpfs", "-o", "mode=755,size=90%", "tmpfs", memory)
        do("cp", "--archive", folder + "/upper", folder + "/work", memory)
        mount_overlay(memory, at)


def mount_overlay(folder: str, at: str) -> None:
    layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    do("mount", "-t", "overlay", "orch-lab", "-o", layers, at)


def make_roots(plan: Plan) -> None:
    root = plan.folder + "/host/root"
    overlay(plan.folder, "host", root)
    for name, container_root in plan.container_roots.items():
        overlay(plan.folder, name, root + container_root)
    for path in plan.binds:
        do("mount", "--bind", "-o", "ro", path, root + path)
    do("mount", "--bind", plan.folder + "/shared", root + plan.shared_at)
    do("mount", "-t", "proc", "proc", root + "/proc")
    do("mount", "-t", "sysfs", "sysfs", root + "/sys")
    do("mount", "-t", "cgroup2", "cgroup2", root + "/sys/fs/cgroup")
    do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root + "/run")
    do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root + "/dev")
    make_devices(Path(root + "/dev"))
    for file in sorted(Path(plan.folder, "shared/gpus").iterdir()):
        seen = Path(root + "/dev", file.name)
        seen.touch()
        do("mount", "--bind", str(file), str(seen))
    Path(root + "/run/sshd").mkdir(mode=0o755)
    Path(root + "/run/lock").mkdir(mode=0o1777)


def make_devices(folder: Path) -> None:
    for name, (major, minor) in DEVICES.items():
        os.mknod(folder / name, 0o020666, os.makedev(major, minor))
        (folder / name).chmod(0o666)
    for name, mode, kind, options in (
        ("pts", 0o755, "devpts", "newinstance,ptmxmode=0666,mode=620"),
        ("shm", 0o1777, "tmpfs", "mode=1777,nosuid,nodev"),
        ("mqueue", 0o1777, "mqueue", "nosuid,nodev"),
    ):
        (folder / name).mkdir(mode=mode)
        do("mount", "-t", kind, "-o", options, kind, str(folder / name))
    for name, to in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"),
                     ("stderr", "fd/2")):  # fmt: skip
        (folder / name).symlink_to(to)


def enter_root(plan: Plan, controller: int) -> None:
    os.chdir(plan.folder + "/host/root")
    do("pivot_root", ".", ".machine")
    os.chdir("/")
    do("umount", "--lazy", "/.machine")
    do("hostname", plan.host_name)
    # Process 1 stays at the top, where LXC reads the place to make `lxc/<id>`. It may: no controller is handed
    # down to here, so cgroup2's rule against processes in inner groups does not bite.
    host = Path("/sys/fs/cgroup/host")
    host.mkdir()
    (host / "cgroup.procs").write_text(str(controller))


if __name__ == "__main__":
    raise SystemExit(main())
