"""The guard really blocks: in this process and in a Python child; loopback and a lab's namespace stay open."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import network_guard as guard
import pytest

FAR = "10.1.2.6"


@pytest.fixture
def ssh_config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(
        "Host box jump\n  HostName 127.0.0.1\n  Port 2222\n"
        "Host away\n  HostName 10.1.2.6\n"
        "Host behind\n  HostName 127.0.0.1\n  ProxyJump jump\n"
        "Host behind-away\n  HostName 127.0.0.1\n  ProxyJump away\n"
        "Host by-ssh\n  HostName 127.0.0.1\n  ProxyCommand ssh -F none -W %h:%p 10.1.2.6\n"
        "Host by-nc\n  HostName 10.1.2.6\n  ProxyCommand nc %h %p\n"
        "Host by-python\n  HostName ct\n  ProxyCommand python3 -c pass\n"
    )
    return path


def test_connect_is_blocked() -> None:
    with socket.socket() as connection, pytest.raises(guard.BlockedByGuard):
        connection.connect((FAR, 22))


def test_connect_over_ipv6_is_blocked() -> None:
    with socket.socket(socket.AF_INET6) as connection, pytest.raises(guard.BlockedByGuard):
        connection.connect(("2001:db8::1", 22))


def test_a_datagram_is_blocked() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as connection, pytest.raises(guard.BlockedByGuard):
        connection.sendto(b"", (FAR, 9))


def test_loopback_and_unix_sockets_stay_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


BLOCKED = [
    ["ssh", FAR],
    ["ssh", "-o", "ConnectTimeout=1", f"root@{FAR}", "true"],
    ["/usr/bin/ssh", "-J", FAR, "127.0.0.1"],
    ["sudo", "-n", "ssh", FAR],
    ["env", "-i", "PATH=/usr/bin", "timeout", "1", "ssh", FAR],
    ["sh", "-c", f"true; exec ssh -T {FAR} true"],
    ["sh", "-c", "exec ssh $FAR"],
    ["sh", "-c", 'exec "$0" "$@"', "ssh", FAR],
    ["bash", "-c", f"(A=1 ssh '{FAR}')"],
    ["ssh-keyscan", "-T", "1", FAR],
    ["ssh-keyscan", "-p", "22", "localhost", FAR],
    ["sftp", "-b", "-", f"root@{FAR}"],
    ["scp", "file", f"{FAR}:file"],
    ["rsync", "-a", "-e", "ssh -p 22", "./", f"{FAR}:x/"],
    ["rsync", "-a", "./", f"rsync://{FAR}/x"],
]


@pytest.mark.parametrize("argv", BLOCKED, ids=" ".join)
def test_a_command_is_blocked(argv: list[str]) -> None:
    with pytest.raises(guard.BlockedByGuard):
        subprocess.Popen(argv, stdin=subprocess.DEVNULL)


def test_every_way_to_start_a_program_is_watched() -> None:
    with pytest.raises(guard.BlockedByGuard):
        os.system(f"ssh {FAR}")
    with pytest.raises(guard.BlockedByGuard):
        os.execvp("ssh", ["ssh", FAR])
    with pytest.raises(guard.BlockedByGuard):
        os.posix_spawn("/usr/bin/ssh", ["ssh", FAR], {})
    # This one forks first: the child is refused its exec and ends.
    assert os.spawnvp(os.P_WAIT, "ssh", ["ssh", FAR]) == 127


OPEN = [
    ["ssh", "-V"],
    ["ssh", "-G", FAR],
    ["ssh", "-p", "2222", "root@127.0.0.1", "true"],
    ["ssh", "-o", "HostName=127.0.0.1", "gpu-box"],
    ["ssh", "-O", "check", "localhost"],
    ["ssh-keyscan", "-p", "22", "127.0.0.1"],
    ["rsync", "-a", "here/", "there/"],
    ["rsync", "-e", "ssh -p 22", "here/", "127.0.0.1:there/"],
    ["sftp", "-P", "22", "root@localhost:/x"],
    ["unshare", "-rn", "ssh", FAR],
    ["grep", "ssh", FAR],
    ["sh", "-c", "echo ssh"],
]


@pytest.mark.parametrize("argv", OPEN, ids=" ".join)
def test_a_command_stays_open(argv: list[str]) -> None:
    guard.check_command(argv)


@pytest.mark.parametrize("alias", ["away", "behind-away", "by-ssh", "by-nc"])
def test_an_alias_that_leads_away_is_blocked(ssh_config: Path, alias: str) -> None:
    with pytest.raises(guard.BlockedByGuard):
        guard.check_command(["ssh", "-F", str(ssh_config), alias])


@pytest.mark.parametrize("alias", ["box", "behind", "by-python"])
def test_an_alias_that_stays_here_is_open(ssh_config: Path, alias: str) -> None:
    guard.check_command(["ssh", "-F", str(ssh_config), alias])


CHILD = """
import socket, subprocess, sys
for act in (lambda: socket.create_connection(("10.1.2.6", 22), 1), lambda: subprocess.Popen(["ssh", "10.1.2.6"])):
    try:
        act()
    except RuntimeError as error:
        print(type(error).__name__)
"""


def test_a_python_child_is_guarded_too() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["BlockedByGuard", "BlockedByGuard"]


def current_inode() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def record(folder: Path, inodes: list[int]) -> dict[str, str]:
    path = folder / "lab.json"
    path.write_text(json.dumps({"network_namespace_inodes": inodes}))
    return {"ORCH_LAB_RECORD": str(path)}


def test_a_record_of_other_namespaces_opens_nothing(tmp_path: Path) -> None:
    assert not guard.in_lab(record(tmp_path, []))
    assert not guard.in_lab(record(tmp_path, [current_inode() + 1]))
    assert not guard.in_lab({"ORCH_LAB_RECORD": str(tmp_path / "missing")})
    assert not guard.in_lab({})


def test_the_machines_own_namespace_is_never_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "machine_inodes", lambda: {current_inode()})
    assert not guard.in_lab(record(tmp_path, [current_inode()]))


def test_a_record_of_somebody_else_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = record(tmp_path, [7])
    assert guard.recorded_inodes(environment) == {7}
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert guard.recorded_inodes(environment) == frozenset()


def test_a_namespace_with_a_way_out_is_never_a_lab() -> None:
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    assert not guard.has_default_route(head + "eth0\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
    assert guard.has_default_route(head + "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")


IN_A_NAMESPACE = """
import json, os, socket, sys
path = sys.argv[1]
with open(path, "w") as stream:
    json.dump({"network_namespace_inodes": [os.stat("/proc/self/ns/net").st_ino]}, stream)
os.environ["ORCH_LAB_RECORD"] = path
try:
    socket.create_connection(("10.1.2.6", 22), 1)
except OSError as error:
    print("tried", error.errno)
"""


def test_inside_a_recorded_namespace_the_address_may_be_tried(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", IN_A_NAMESPACE]
    done = subprocess.run([*command, str(tmp_path / "lab.json")], capture_output=True, text=True, timeout=60)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("this machine gives no user namespace: " + done.stderr.strip())
    assert done.stdout.split()[:1] == ["tried"], done.stderr
