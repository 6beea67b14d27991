"""The embedded lab's container: start, enter and stop it without root. Standard library only.

Rule: its processes are known by a mark that they inherit and cannot shed: the hard limit on POSIX message queues,
set to a number of this lab's own. It holds across setsid, exec, `env -i`, a lost parent and a killed lab.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE, MS_RDONLY = 0x1000, 0x4000, 0x40000, 0x1
KILL_DEADLINE_S = 20.0
ROOTS_TMUX = "/tmp/tmux-0"  # /tmp is the machine's, in the container too
CLEAR_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "linux"}


def set_mark(mark: int) -> None:
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (mark, mark))


def has_mark(pid: int, marks: set[int]) -> bool:
    """Whether it is a living process of the caller's with one of these marks."""
    folder = Path(f"/proc/{pid}")
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        limits = (folder / "limits").read_text()
    except OSError:
        return False
    line = next(line for line in limits.splitlines() if line.startswith("Max msgqueue size"))
    soft, hard = line.split()[3:5]
    return state not in "ZX" and soft == hard and hard.isdigit() and int(hard) in marks


def marked(marks: set[int]) -> list[int]:
    numbers = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [pid for pid in numbers if pid != os.getpid() and has_mark(pid, marks)]


def kill_marked(marks: set[int]) -> None:
    """KILL them until none is left. Raises TimeoutError."""
    deadline = time.monotonic() + KILL_DEADLINE_S
    while victims := marked(marks):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {victims} cannot be killed")
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    if has_mark(pid, marks):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        time.sleep(0.005)


def call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())


def start(lab: Path, container: str) -> None:
    settings = json.loads((lab / "container.json").read_text())
    state = lab / f"container-{container}"
    set_mark(int((lab / "container-tag").read_text()))
    if settings["namespaces"]:
        init = start_namespaces(lab, settings)
        ticks = Path(f"/proc/{init}/stat").read_text().rpartition(")")[2].split()[19]
        words = f"namespaces {init} {ticks}\n"
    else:
        words = "plain 0 0\n"
    draft = state.with_suffix(".draft")
    draft.write_text(words)
    draft.replace(state)


def start_namespaces(lab: Path, settings: dict[str, Any]) -> int:
    """Returns the pid of the container's process 1, as everybody else sees it."""
    user, group = os.getuid(), os.getgid()
    call("unshare", CLONE_NEWUSER | CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    said_read, said_write = os.pipe()  # both close on exec: the end of the pipe is the good news
    init = os.fork()
    if init == 0:
        try:
            become_init(lab, settings)
        except BaseException as error:
            os.write(said_write, str(error).encode())
        os._exit(1)
    os.close(said_write)
    said = os.read(said_read, 4096).decode()
    if said:
        raise RuntimeError(said)
    return init


def become_init(lab: Path, settings: dict[str, Any]) -> None:
    # Only now: the parent must go on seeing the machine's /proc.
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    # The real driver knows every process by the host's number, whoever asks.
    mount("/proc", str(lab / "driver-proc"), "", MS_BIND | MS_REC)
    mount("proc", "/proc", "proc", 0)
    show_gpus(lab)
    if settings["programs"]:
        mount("overlay", "/usr/bin", "overlay", MS_RDONLY, f"lowerdir={settings['programs']}:/usr/bin")
    for path in settings["binds"]:
        mount(path, path.replace("/root", settings["root"], 1), "", MS_BIND)
    mount(settings["root"], "/root", "", MS_BIND | MS_REC)
    hide_tmux(lab)
    socket.sethostname("ct200")
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, "-IS", str(lab / "pid1.py")])


def hide_tmux(lab: Path) -> None:
    """The container's root is another than the machine's, whose tmux would refuse it, or show it its sessions."""
    if os.path.isdir(ROOTS_TMUX):
        own = lab / "tmux"
        own.mkdir(mode=0o700, exist_ok=True)
        mount(str(own), ROOTS_TMUX, "", MS_BIND)


def show_gpus(lab: Path) -> None:
    """/dev as it was, and the lab's GPU files in it."""
    draft = lab / "dev"
    mount("dev", str(draft), "tmpfs", 0, "mode=755")
    # As one piece: ptmx finds its terminals by the `pts` beside it, which a file mounted alone does not have.
    machine = draft / ".machine"
    machine.mkdir()
    mount("/dev", str(machine), "", MS_BIND | MS_REC)
    for entry in os.scandir("/dev"):
        seen = draft / entry.name
        if entry.name.startswith("nvidia"):
            continue
        if entry.is_symlink():
            seen.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            seen.mkdir()
            mount(entry.path, str(seen), "", MS_BIND | MS_REC)
        else:
            seen.symlink_to(f"{machine.name}/{entry.name}")
    for file in (lab / "gpus").iterdir():
        (draft / file.name).touch()
        mount(str(file), str(draft / file.name), "", MS_BIND)
    mount(str(draft), "/dev", "", MS_BIND | MS_REC)


def attach(lab: Path, container: str, environment_option: str, argv: list[str]) -> int:
    """Run argv in the container, like lxc-attach; returns the code to exit with."""
    mode, init, _ = (lab / f"container-{container}").read_text().split()
    set_mark(int((lab / "container-tag").read_text()))
    environment = CLEAR_ENVIRONMENT if environment_option == "--clear-env" else dict(os.environ)
    folder = os.getcwd()
    if mode == "namespaces":
        spaces = [os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY) for name in ("user", "pid", "uts", "ipc", "mnt")]
        for space in spaces:
            call("setns", space, 0)
            os.close(space)
    child = os.fork()
    if child == 0:
        os._exit(become_command(container, argv or ["/bin/sh"], {**environment, "container": "lxc"}, folder))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # the terminal sends them to the command as well
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def become_command(container: str, argv: list[str], environment: dict[str, str], folder: str) -> int:
    """Returns only if there is no such command."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored is inherited
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        sys.stderr.write(f'lxc-attach: {container}: {error.strerror} - Failed to exec "{argv[0]}"\n')
        sys.stderr.flush()
        return 127 if error.errno == errno.ENOENT else 126


def stop(lab: Path, container: str) -> None:
    state = lab / f"container-{container}"
    # The state goes first: from then on nobody attaches to what is being killed.
    state.unlink(missing_ok=True)
    kill_marked({int((lab / "container-tag").read_text())})


def main() -> int:
    verb, folder, container, *rest = sys.argv[1:]
    lab = Path(folder)
    try:
        if verb == "attach":
            return attach(lab, container, rest[0], rest[1:])
        {"start": start, "stop": stop}[verb](lab, container)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
