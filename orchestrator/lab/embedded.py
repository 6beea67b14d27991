"""The embedded lab: an SSH server on loopback and a container made of what any user may use. Needs no root.

Rule: every process of it carries the lab's mark (doubles/container.py); taking it down ends exactly those.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import resource
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncssh

from orchestrator.inventory.loader import load_inventory
from orchestrator.lab import doubles
from orchestrator.lab.doubles.container import kill_marked
from orchestrator.lab.embedded_inventory import lab_inventory
from orchestrator.lab.records import (
    LabError,
    LabProcess,
    LabRecord,
    boot_id,
    embedded_labs,
    end_processes,
    new_record,
    settled,
)
from orchestrator.lab.surface import CONTAINER_ID, Lab, inherited, interpreter_folders, project_path

NAMESPACES = "user, pid, mount, uts, ipc namespaces; no cgroup, LXC, sudo, root of its own"
PLAIN = "nothing; no namespace, cgroup, LXC, sudo, root of its own"
PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
HIGHEST_MARK = 819200
LOWEST_MARK = 4096
ATTACH_ENVIRONMENT = {"PATH": ":".join(PROGRAM_FOLDERS)}


class EmbeddedLab(Lab):
    """See `Lab`. orch finds it through ORCH_INVENTORY, which `environment` sets."""

    @classmethod
    def up(cls, *, venv: Path | None = None, bound: bool = False, namespaces: bool | None = None) -> EmbeddedLab:
        """Make one. venv: what the container's venv points at; bound: stale once this process is gone;
        namespaces: None: where the machine allows them."""
        if sys.platform != "linux":
            raise LabError("the embedded lab needs Linux")
        lab = cls(new_record("embedded", embedded_labs()))
        try:
            lab._make(Path(venv or sys.prefix).absolute(), namespaces)
            lab.record = settled(lab.record, bound=bound)
        except BaseException:
            lab.down()
            raise
        return lab

    def _make(self, venv: Path, namespaces: bool | None) -> None:
        if namespaces is None:
            namespaces = namespaces_allowed()
        self._note(mark=new_mark(), isolation=NAMESPACES if namespaces else PLAIN)
        for name in ("bin", "home", "programs", "run", "shared/pve", "ssh", "state", "ct200/orch"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        (self.folder / "ct200/venv").symlink_to(venv)
        self._make_doubles(namespaces, venv)
        self._make_keys()
        self._start_server(port=0)
        self.start_container()
        self._write_inventory(venv, devices=namespaces)

    @property
    def _marks(self) -> tuple[int, int]:
        """The host's and the container's. A process can lower its own but not raise it again."""
        if self.record.mark is None:
            raise LabError(f"lab {self.record.id} has no mark")
        return self.record.mark, self.record.mark - 1

    def _make_doubles(self, namespaces: bool, venv: Path) -> None:
        python = Path(sys.executable).resolve()
        doubles.install(self.shared, backend="embedded", seen_at=str(self.shared), python=python)
        for name in ("pct", "nvidia-smi"):
            (self.folder / "bin" / name).symlink_to(self.shared / name)
        (self.folder / "programs/nvidia-smi").symlink_to(self.shared / "nvidia-smi")
        (self.shared / f"pve/{CONTAINER_ID}.conf").write_text("arch: amd64\nhostname: ct200\nostype: debian\n")
        (self.shared / "container-tag").write_text(f"{self._marks[1]}\n")
        # The container's home covers /root; an interpreter that lives there is shown through it.
        binds = [str(path) for path in interpreter_folders(venv) if path.is_relative_to("/root")]
        for path in binds:
            (self.folder / "ct200" / path.removeprefix("/root/")).mkdir(parents=True, exist_ok=True)
        settings = {
            "namespaces": namespaces,
            "root": str(self.folder / "ct200"),
            "binds": binds,
            "programs": str(self.folder / "programs"),
        }
        (self.shared / "container.json").write_text(json.dumps(settings))

    def _make_keys(self) -> None:
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key = asyncssh.generate_private_key("ssh-ed25519", comment="orch-lab")
        write_private(self.folder / "host_key", host_key.export_private_key())
        write_private(self.folder / "ssh/id_ed25519", user_key.export_private_key())
        user_key.write_public_key(str(self.folder / "ssh/id_ed25519.pub"))
        user_key.write_public_key(str(self.folder / "authorized_keys"))
        write_private(self.folder / "host_key.pub", host_key.export_public_key())

    def _start_server(self, port: int) -> None:
        settings = {"port": port, "mark": self._marks[0]}
        (self.folder / "server.json").write_text(json.dumps(settings))
        environment = {**os.environ, "PYTHONPATH": project_path()}
        with (self.folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.lab.embedded_server", str(self.folder)],
                cwd="/", env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert server.stdout is not None
        with server.stdout as stream:
            said = stream.readline().strip()
        if not said:
            server.wait()
            log_text = (self.folder / "server.log").read_text(errors="replace")
            raise LabError("the embedded lab's SSH server did not start", evidence=log_text)
        self._note(processes=(LabProcess.of("server", server.pid),), port=int(said))
        public = (self.folder / "host_key.pub").read_text().split()
        known = f"[127.0.0.1]:{self.record.port} {public[0]} {public[1]}\n"
        write_private(self.folder / "ssh/known_hosts", known.encode())
        write_private(self.folder / "ssh/config", b"")

    def _write_inventory(self, venv: Path, *, devices: bool) -> None:
        ssh = self.folder / "ssh"
        host = {
            "address": "127.0.0.1",
            "port": self.record.port,
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "identity_file": str(ssh / "id_ed25519"),
            "known_hosts": str(ssh / "known_hosts"),
            "ssh_config": str(ssh / "config"),
            "become": "none",
        }
        target = {"root": str(self.folder / "ct200"), "python": str(Path(sys.executable).resolve())}
        payload: dict[str, object] = {"python": str(venv / "bin/python")}
        if not devices:
            payload["devices"] = 0
        text = lab_inventory(load_inventory().path, CONTAINER_ID, host, target, payload)
        (self.folder / "inventory.yaml").write_text(text)

    # -- the controller's side ---------------------------------------------------------------------

    @property
    def inventory(self) -> Path | None:
        return self.folder / "inventory.yaml"

    def command(self, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        if not self.record.alive():
            raise LabError(f"lab {self.record.id} is dead", way_out=f"orch lab down --lab {self.record.id}")
        return list(argv)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**inherited(self.record, {"ORCH_INVENTORY": str(self.inventory)}), **(extra or {})}

    def ssh_argv(self, *command: str) -> list[str]:
        """OpenSSH's client, told of this lab and nothing else."""
        ssh = self.folder / "ssh"
        options = {"IdentityFile": ssh / "id_ed25519", "UserKnownHostsFile": ssh / "known_hosts",
                   "GlobalKnownHostsFile": "/dev/null", "IdentitiesOnly": "yes", "BatchMode": "yes"}  # fmt: skip
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        login = f"{pwd.getpwuid(os.getuid()).pw_name}@127.0.0.1"
        return ["ssh", "-F", str(ssh / "config"), *words, "-p", str(self.record.port), login, *command]

    # -- the far side ------------------------------------------------------------------------------

    def _container(self, verb: str, container: int) -> None:
        argv = [sys.executable, "-ISE", str(self.shared / "container.py"), verb, str(self.shared), str(container)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise LabError(f"the embedded container does not {verb}", evidence=done.stderr)

    @property
    def shared_seen_at(self) -> str:
        return str(self.shared)

    def far_command(self, argv: Sequence[str], container: int | None) -> list[str]:
        if container is None:
            mark = self._marks[0]
            return ["prlimit", f"--msgqueue={mark}:{mark}", "--", *argv]
        double = [sys.executable, "-ISE", str(self.shared / "container.py"), "attach", str(self.shared)]
        return [*double, str(container), "--clear-env", *argv]

    def container_running(self, container: int = CONTAINER_ID) -> bool:
        state = self._container_state(container)
        return state is not None and (state.pid == 0 or state.alive())

    def _container_state(self, container: int) -> LabProcess | None:
        """Process 1 of the container; its pid is 0 where it has none."""
        try:
            _, pid, ticks = (self.shared / f"container-{container}").read_text().split()
        except FileNotFoundError:
            return None
        return LabProcess("container", int(pid), int(ticks))

    def start_container(self, container: int = CONTAINER_ID) -> None:
        self._container("start", container)

    def stop_container(self, container: int = CONTAINER_ID) -> None:
        self._container("stop", container)

    def link_down(self) -> None:
        # A stopped server keeps its connections and takes new ones into the backlog: nothing is answered, nothing ends.
        self.record.process("server").send(signal.SIGSTOP)

    def link_up(self) -> None:
        self.record.process("server").send(signal.SIGCONT)

    def restart_sshd(self) -> None:
        """Start the server anew on the same port. Its sessions are cut; what they ran goes on."""
        end_processes(self.record.processes)
        self._start_server(self.record.port or 0)

    def hide_program(self, name: str) -> None:
        # Something that cannot be executed is not a program for any search of PATH.
        self._cover(name, 'for f in "$@"; do if [ -x "$f" ]; then mount --bind /dev/null "$f" || exit; fi; done')

    def show_program(self, name: str) -> None:
        self._cover(name, 'for f in "$@"; do if [ -c "$f" ]; then umount "$f" || exit; fi; done')

    def _cover(self, name: str, script: str) -> None:
        init = self._container_state(CONTAINER_ID)
        if init is None or init.pid == 0:
            raise LabError("without namespaces the embedded lab cannot hide a program")
        enter = ["nsenter", "--target", str(init.pid), "--user", "--mount", "--pid", "--preserve-credentials", "--"]
        files = dict.fromkeys(str(Path(folder).resolve() / name) for folder in PROGRAM_FOLDERS)
        done = subprocess.run(
            [*enter, "/bin/sh", "-c", script, "sh", *files], capture_output=True, text=True, env=ATTACH_ENVIRONMENT
        )
        if done.returncode != 0:
            raise LabError(f"{name} cannot be hidden or shown", evidence=done.stderr)

    def down(self) -> None:
        remove(self.record)


def remove(record: LabRecord) -> None:
    """Raises LabError, leaving the folder (and so the record), when something will not go."""
    if record.boot_id == boot_id():
        end_processes(record.processes)
        if record.mark is not None:
            try:
                kill_marked({record.mark, record.mark - 1})
            except TimeoutError as error:
                raise LabError(f"lab {record.id} cannot be taken down", evidence=str(error)) from error
    shutil.rmtree(record.path)
    with contextlib.suppress(OSError):
        record.path.parent.rmdir()  # only when this was the last


def namespaces_allowed() -> bool:
    """Found by trying: kernels, distributions and containers refuse them for many reasons."""
    argv = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "true"]
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def new_mark() -> int:
    """An even number that no other process is likely to have as its limit on message queues."""
    hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]
    highest = HIGHEST_MARK if hard == resource.RLIM_INFINITY else min(hard, HIGHEST_MARK)
    if highest < 2 * LOWEST_MARK:
        raise LabError("the limit on POSIX message queues is too low for the lab's mark", evidence=f"ulimit -q: {hard}")
    return 2 * (LOWEST_MARK // 2 + secrets.randbelow((highest - LOWEST_MARK) // 2 - 1) + 1)


def write_private(file: Path, data: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(data)
