"""The files of a real lab before anything runs: keys, the host's /etc, LXC's config, the doubles.

Rule: writes only below the lab's own folder; what is written under `upper` covers the machine's own file in the lab.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.lab import doubles
from orchestrator.lab.real_namespaces import Plan
from orchestrator.lab.surface import CONTAINER_ID, NEIGHBOUR_ID

HOST_NAME = "gpu-box"
CONTAINER_FOLDERS = {CONTAINER_ID: "container", NEIGHBOUR_ID: "neighbour"}
"""Where the lab keeps what each container has changed of the machine's root."""
HIDDEN_FOLDERS = ("/root", "/tmp", "/run", "/home", "/var/lib/orch-lab", "/var/lib/lxc", "/etc/ssh", "/etc/sudoers.d")
"""Of the machine; the lab's host and container start with empty ones."""

SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
"""

LXC_CONFIG = """\
lxc.arch = {machine}
lxc.uts.name = {name}
lxc.rootfs.path = dir:/var/lib/lxc/{id}/rootfs
lxc.init.cmd = {python} -IS {shared}/pid1.py
lxc.net.0.type = empty
lxc.mount.auto = proc:rw sys:rw
lxc.mount.entry = tmpfs dev/shm tmpfs rw,nosuid,nodev,create=dir 0 0
lxc.mount.entry = {shared} {shared_below_root} none bind,create=dir 0 0
lxc.mount.entry = /proc {shared_below_root}/driver-proc none bind 0 0
lxc.autodev = 1
lxc.tty.max = 2
lxc.pty.max = 1024
lxc.environment = TERM=linux
lxc.cgroup.dir.monitor = lxc.monitor/{id}
lxc.cgroup.dir.container = lxc/{id}
lxc.cgroup.dir.container.inner = ns
"""

PVE_CONFIG = """\
arch: amd64
cores: 16
hostname: {name}
memory: 65536
ostype: debian
rootfs: local-lvm:vm-{id}-disk-0,size=250G
swap: 0
"""


def make_files(plan: Plan, *, python: Path, environment: Path) -> None:
    """python: the interpreter the doubles run under, its symlinks resolved. environment: what /root/venv points at."""
    # A file of the lab's upper layer hides the machine's; with the caller's umask it could lock logins out.
    umask = os.umask(0o022)
    try:
        make_all(plan, python, environment)
    finally:
        os.umask(umask)


def make_all(plan: Plan, python: Path, environment: Path) -> None:
    lab = Path(plan.folder)
    for name in (
        "cgroup",
        "run",
        "state",
        "host/root",
        "host/work",
        *(f"{n}/work" for n in CONTAINER_FOLDERS.values()),
    ):
        (lab / name).mkdir(parents=True, mode=0o700)
    doubles.install(lab / "shared", backend="lxc", seen_at=plan.shared_at, python=python)
    host = make_upper(lab, "host")
    make_host(host, plan)
    for container, name in CONTAINER_FOLDERS.items():
        make_container(make_upper(lab, name), container, plan.shared_at, environment)
        configure_container(host, container, plan, python)
    for path in plan.binds:
        (host / path[1:]).mkdir(parents=True, exist_ok=True)
    make_keys(lab / "ssh", host, plan.host_address)


def write(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=mode)
    file.chmod(mode)
    file.write_text(text)


def make_upper(lab: Path, name: str) -> Path:
    upper = lab / name / "upper"
    upper.mkdir(parents=True)
    for hidden in HIDDEN_FOLDERS:
        folder = upper / hidden[1:]
        folder.mkdir(parents=True)
        folder.chmod({"/root": 0o700, "/tmp": 0o1777}.get(hidden, 0o755))
        # Opaque: the overlay shows nothing of the machine's folder of that name.
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    return upper


def root_of(container: int) -> str:
    """Where the host sees this container's root."""
    return f"/var/lib/lxc/{container}/rootfs"


def make_host(upper: Path, plan: Plan) -> None:
    etc = upper / "etc"
    write(etc / "passwd", accounts("/etc/passwd", ("root:x:0:0:root:/root:/bin/bash",
                                                   "trainer:x:7200:7200::/home/trainer:/bin/bash")))  # fmt: skip
    write(etc / "group", accounts("/etc/group", ("root:x:0:", "trainer:x:7200:")))
    # A `*` is no password, and unlike `!` no locked account: sshd would refuse that one.
    write(etc / "shadow", accounts("/etc/shadow", ("root:*:19000:0:99999:7:::", "trainer:*:19000:0:99999:7:::")), 0o600)
    write(etc / "nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    write(etc / "hosts", f"127.0.0.1 localhost\n{plan.host_address} {HOST_NAME}\n")
    write(etc / "hostname", HOST_NAME + "\n")
    write(etc / "sudoers", "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n"
          "trainer ALL=(root) NOPASSWD: /usr/sbin/pct\n", 0o440)  # fmt: skip
    write(etc / "ssh/sshd_config", SSHD_CONFIG.format(address=plan.host_address))
    (etc / "pve").mkdir()
    (etc / "pve/lxc").symlink_to(f"nodes/{HOST_NAME}/lxc")
    for name, place in (("pct", "usr/sbin"), ("nvidia-smi", "usr/bin")):
        (upper / place).mkdir(parents=True)
        (upper / place / name).symlink_to(f"{plan.shared_at}/{name}")
    for seen in (plan.shared_at, *plan.container_roots.values(), "/.machine"):
        (upper / seen[1:]).mkdir(parents=True, exist_ok=True)


def configure_container(host: Path, container: int, plan: Plan, python: Path) -> None:
    """Proxmox's configuration, which pct reads, and LXC's own."""
    name = f"ct{container}"
    write(host / f"etc/pve/nodes/{HOST_NAME}/lxc/{container}.conf", PVE_CONFIG.format(name=name, id=container))
    config = LXC_CONFIG.format(
        machine=platform.machine(), name=name, id=container, python=python,
        shared=plan.shared_at, shared_below_root=plan.shared_at[1:],
    )  # fmt: skip
    if Path("/sys/kernel/security/apparmor").exists():
        config += "lxc.apparmor.profile = unconfined\n"
    config += "".join(f"lxc.mount.entry = {path} {path[1:]} none bind,ro,create=dir 0 0\n" for path in plan.binds)
    for device in doubles.GPU_FILES:
        config += f"lxc.mount.entry = /dev/{device} dev/{device} none bind,create=file 0 0\n"
    write(host / f"var/lib/lxc/{container}/config", config)


def accounts(file: str, lines: Sequence[str]) -> str:
    """The machine's account file with these lines in place of those of the same names."""
    replaced = {line.partition(":")[0] for line in lines}
    kept = [line for line in Path(file).read_text().splitlines() if line.partition(":")[0] not in replaced]
    return "\n".join([*lines, *kept]) + "\n"


def make_container(upper: Path, container: int, shared_at: str, environment: Path) -> None:
    write(upper / "etc/hostname", f"ct{container}\n")
    write(upper / "etc/hosts", f"127.0.0.1 localhost ct{container}\n")
    write(upper / "etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    (upper / "usr/bin").mkdir(parents=True)
    (upper / "usr/bin/nvidia-smi").symlink_to(f"{shared_at}/nvidia-smi")
    (upper / "root/orch").mkdir(mode=0o755)
    (upper / "root/venv").symlink_to(environment)


def make_keys(controller: Path, host: Path, address: str) -> None:
    """The controller's ~/.ssh and the host's two logins."""
    controller.mkdir(mode=0o700)
    host_key = host / "etc/ssh/ssh_host_ed25519_key"
    user_key = controller / "id_ed25519"
    for key in (host_key, user_key):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "orch-lab", "-f", str(key)]
        subprocess.run(made, stdin=subprocess.DEVNULL, check=True)
    public = host_key.with_suffix(".pub").read_text().split()
    write(controller / "known_hosts", f"{address} {public[0]} {public[1]}\n", 0o600)
    write(controller / "config", "", 0o600)
    for home, owner in (("root", 0), ("home/trainer", 7200)):
        folder = host / home / ".ssh"
        folder.mkdir(parents=True)
        shutil.copyfile(user_key.with_suffix(".pub"), folder / "authorized_keys")
        for path in (host / home, folder, folder / "authorized_keys"):
            os.chown(path, owner, owner)
            path.chmod(0o600 if stat.S_ISREG(path.stat().st_mode) else 0o700)
