"""The real lab: OpenSSH's sshd on 10.1.2.6 and LXC container 200, in namespaces of this machine. Needs root.

Rule: one process (`real_namespaces`) is process 1 of everything on the far side; ending it ends all of it.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.lab import doubles, real_files, real_removal
from orchestrator.lab.real_namespaces import Plan
from orchestrator.lab.records import REAL_LABS, LabError, LabProcess, new_record, settled
from orchestrator.lab.surface import (
    CONTAINER_ID,
    FAR_ENVIRONMENT,
    NEIGHBOUR_ID,
    Lab,
    inherited,
    interpreter_folders,
    project_path,
    wait_until,
)

HOST_ADDRESS = "10.1.2.6"
CONTROLLER_ADDRESS = "10.1.2.1"
SECOND_CONTROLLER_ADDRESS = "10.1.2.2"
SECOND_LINK_TABLE = "102"
PREFIX_LENGTH = 24
SHARED_AT = "/usr/local/lib/orch-lab"
NEEDED = ("ip", "lxc-attach", "lxc-start", "mount", "nsenter", "pivot_root", "ssh-keygen", "unshare")
PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
INTO_HOST_CGROUP = 'echo 0 > /sys/fs/cgroup/host/cgroup.procs && exec "$@"'
INTO_FOLDER = 'cd "$0" || exit 126; exec "$@"'


def why_not() -> str | None:
    """What this machine lacks for a real lab; None: nothing known."""
    if sys.platform != "linux":
        return "it needs Linux"
    if os.getuid() != 0:
        return "it needs root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if sshd_program() is None:
        missing.append("sshd")
    if missing:
        return f"these programs are missing: {', '.join(missing)} (Debian: apt-get install lxc openssh-server iproute2)"
    return None


def sshd_program() -> str | None:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")


class RealLab(Lab):
    """See `Lab`. The shipped inventory.yaml works unchanged on the controller's side."""

    @classmethod
    def up(cls, *, venv: Path | None = None, bound: bool = False) -> RealLab:
        """Make one. venv: what the container's /root/venv points at; bound: stale once this process is gone."""
        lacking = why_not()
        if lacking:
            raise LabError(f"a real lab cannot be made here: {lacking}", way_out="orch lab up --embedded")
        lab = cls(new_record("real", REAL_LABS))
        try:
            lab._make(Path(venv or sys.prefix).absolute())
            lab.record = settled(lab.record, bound=bound)
        except BaseException:
            lab.down()
            raise
        return lab

    def _make(self, venv: Path) -> None:
        plan = Plan(
            folder=str(self.folder),
            cgroup=f"orch-lab-{self.record.id}",
            host_name=real_files.HOST_NAME,
            host_address=HOST_ADDRESS,
            controller_address=CONTROLLER_ADDRESS,
            prefix_length=PREFIX_LENGTH,
            ssh_home=str(real_removal.make_ssh_home()),
            shared_at=SHARED_AT,
            container_roots={name: real_files.root_of(id) for id, name in real_files.CONTAINER_FOLDERS.items()},
            binds=hidden_paths(venv),
        )
        self._note(cgroup=plan.cgroup, isolation="LXC: own pid, mount, uts, ipc and network namespaces, cgroup2")
        real_files.make_files(plan, python=Path(sys.executable).resolve(), environment=venv)
        plan.write(self.folder / "plan.json")
        self._start_namespaces()
        self.start_sshd()
        self.start_container()

    def _start_namespaces(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.lab.real_namespaces", str(self.folder / "plan.json")],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", timeout=60,
            env={**os.environ, "PYTHONPATH": project_path(), "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
        )  # fmt: skip
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {"error": done.stderr}
        if "init" in answer:
            self._note(processes=(LabProcess.of("init", answer["init"]),) if "error" not in answer else ())
        if "error" in answer:
            raise LabError("the lab's namespaces cannot be made", evidence=answer["error"])
        init, controller = self.record.processes[0], LabProcess.of("controller", answer["controller"])
        inodes = tuple(Path(f"/proc/{p.pid}/ns/net").stat().st_ino for p in (init, controller))
        self._note(processes=(init, controller), network_namespace_inodes=inodes)

    # -- the controller's side ---------------------------------------------------------------------

    def command(self, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        controller = self._living("controller")
        enter = ["nsenter", f"--net=/proc/{controller}/ns/net", f"--mount=/proc/{controller}/ns/mnt", "--"]
        # Entering a mount namespace leaves the folder; a shell goes back to it without another tool.
        return [*enter, "/bin/sh", "-c", INTO_FOLDER, str(cwd or Path.cwd()), *argv]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**inherited(self.record, extra), "HOME": pwd.getpwuid(0).pw_dir}

    @property
    def inventory(self) -> Path | None:
        return None

    def _living(self, role: str) -> int:
        process = self.record.process(role)
        if not process.alive():
            raise LabError(
                f"the {role} process of lab {self.record.id} is gone", way_out=f"orch lab down --lab {self.record.id}"
            )
        return process.pid

    # -- the far side ------------------------------------------------------------------------------

    def host_command(self, argv: Sequence[str]) -> list[str]:
        """A local argv that runs argv on the host, as root, without SSH."""
        spaces = ["--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup"]
        return ["nsenter", "--target", str(self._living("init")), *spaces, "--",
                "/bin/sh", "-c", INTO_HOST_CGROUP, "sh", *argv]  # fmt: skip

    def host_run(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the host, as root, without SSH. check: raise LabError unless it exits with 0."""
        done = subprocess.run(
            self.host_command(argv), stdin=subprocess.DEVNULL, capture_output=True, env=FAR_ENVIRONMENT,
            timeout=timeout_s,
        )  # fmt: skip
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace")
            raise LabError(f"on the lab's host, {argv[0]} ended with exit code {done.returncode}", evidence=said)
        return done

    def start_sshd(self) -> None:
        self.host_run([str(sshd_program()), "-f", "/etc/ssh/sshd_config", "-E", "/var/log/sshd.log"])
        wait_until(self._sshd_listens, "sshd listens")

    def _sshd_listens(self) -> bool:
        return b":22 " in self.host_run(["ss", "--no-header", "--listening", "--tcp", "--numeric"]).stdout

    def restart_sshd(self) -> None:
        """End the listening sshd; sessions go on. Start a new one."""
        self.stop_sshd()
        self.start_sshd()

    def stop_sshd(self) -> None:
        self.host_run(["sh", "-c", 'kill "$(cat /run/sshd.pid)" && rm -f /run/sshd.pid'])
        wait_until(lambda: not self._sshd_listens(), "sshd stops listening")

    @property
    def shared_seen_at(self) -> str:
        return SHARED_AT

    def container_running(self, container: int = CONTAINER_ID) -> bool:
        done = self.host_run(["lxc-info", "-n", str(container), "--state", "--no-humanize"], check=False)
        return done.stdout.strip() == b"RUNNING"

    def start_container(self, container: int = CONTAINER_ID) -> None:
        log = f"/var/log/lxc-{container}.log"
        script = f'. {SHARED_AT}/pct-backend; start "$1"'
        done = self.host_run(["sh", "-c", script, "sh", str(container)], check=False)
        if done.returncode != 0:
            said = self.host_run(["tail", "-n", "30", log], check=False).stdout.decode(errors="replace")
            raise LabError(f"LXC did not start container {container}", evidence=said)

    def stop_container(self, container: int = CONTAINER_ID) -> None:
        self.host_run(["lxc-stop", "-n", str(container), "--kill"])

    def start_neighbour(self) -> None:
        """The container beside, on the same GPUs, unless it runs already."""
        if not self.container_running(NEIGHBOUR_ID):
            self.start_container(NEIGHBOUR_ID)

    def far_command(self, argv: Sequence[str], container: int | None) -> list[str]:
        inside = [] if container is None else ["lxc-attach", "-n", str(container), "--clear-env", "--"]
        return self.host_command([*inside, *argv])

    def link_down(self) -> None:
        self.host_run(["ip", "link", "set", "eth0", "down"])

    def link_up(self) -> None:
        self.host_run(["ip", "link", "set", "eth0", "up"])

    def make_second_link(self) -> str:
        """Another wire to the same host, which `link_down` leaves alone. Returns the controller's address on it:
        what is bound to that (`BindAddress` in an ssh_config) uses it. Once a lab."""
        init, controller = self._living("init"), self._living("controller")
        host, other_side = (["nsenter", f"--net=/proc/{pid}/ns/net", "--"] for pid in (init, controller))
        back = ["table", SECOND_LINK_TABLE]
        for argv in (
            [*host, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", str(controller)],
            # The host answers to its address on both wires, also when the first is down.
            [*host, "ip", "address", "add", f"{HOST_ADDRESS}/32", "dev", "eth1"],
            [*host, "ip", "link", "set", "eth1", "up"],
            [*host, "ip", "route", "add", f"{SECOND_CONTROLLER_ADDRESS}/32", "dev", "eth1"],
            [*other_side, "ip", "address", "add", f"{SECOND_CONTROLLER_ADDRESS}/32", "dev", "eth1"],
            [*other_side, "ip", "link", "set", "eth1", "up"],
            [*other_side, "ip", "route", "add", f"{HOST_ADDRESS}/32", "dev", "eth1", *back],
            [*other_side, "ip", "rule", "add", "from", SECOND_CONTROLLER_ADDRESS, *back],
        ):
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                raise LabError("the lab's second link cannot be made", evidence=f"{' '.join(argv)}: {done.stderr}")
        return SECOND_CONTROLLER_ADDRESS

    def hide_program(self, name: str) -> None:
        self._rename_program(name, f".hidden-{name}")

    def show_program(self, name: str) -> None:
        self._rename_program(f".hidden-{name}", name)

    def show_nvml(self) -> None:
        """From now on the container has NVML's library; without it there is nvidia-smi only. Needs a C compiler."""
        doubles.build_nvml(self.shared)
        link = f"{real_files.root_of(CONTAINER_ID)}/usr/lib/{doubles.NVML}"
        self.host_run(["ln", "-sf", f"{self.shared_seen_at}/{doubles.NVML}", link])

    def hide_nvml(self) -> None:
        self.host_run(["rm", "-f", f"{real_files.root_of(CONTAINER_ID)}/usr/lib/{doubles.NVML}"])

    def _rename_program(self, old: str, new: str) -> None:
        # In the merged tree as the host sees it: changing an overlay's upper folder from outside is undefined.
        root = real_files.root_of(CONTAINER_ID)
        script = 'for f in "$@"; do if [ -e "$f/$O" ] || [ -h "$f/$O" ]; then mv "$f/$O" "$f/$N" || exit; fi; done'
        folders = [f"{root}/{folder}" for folder in PROGRAM_FOLDERS]
        self.host_run(["env", f"O={old}", f"N={new}", "sh", "-c", script, "sh", *folders])

    def down(self) -> None:
        real_removal.remove(self.record)


def hidden_paths(venv: Path) -> tuple[str, ...]:
    """The interpreters' folders that the lab's root file systems would not show by themselves."""
    device = Path("/").stat().st_dev
    return tuple(
        str(path)
        for path in interpreter_folders(venv)
        if path.stat().st_dev != device or any(path.is_relative_to(folder) for folder in real_files.HIDDEN_FOLDERS)
    )
