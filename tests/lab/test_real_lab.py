"""The real lab is what it says: a host behind SSH, a container behind pct, nothing beyond, nothing left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.records import LabProcess, find_labs, read_record, start_ticks
from orchestrator.lab.surface import Lab
from tests.lab.conftest import require_real_lab
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
PROJECT = Path(__file__).parents[2]
SSH = ["ssh", "-o", "BatchMode=yes"]
HOST = "root@10.1.2.6"


def ssh(lab: Lab, argv: list[str], *, to: str = HOST, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return lab.run([*SSH, to, shlex.join(argv)], stdin=stdin)


def pct(lab: Lab, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return ssh(lab, ["pct", *argv], stdin=stdin)


@pytest.fixture
def own_lab() -> Iterator[RealLab]:
    """One that the test may break."""
    require_real_lab()
    lab = RealLab.up(bound=True)
    yield lab
    if lab.folder.exists():
        lab.down()


# -- what is there -----------------------------------------------------------------------------------


def test_ssh_reaches_the_host_and_pct_the_container(own_lab: RealLab) -> None:
    host = ssh(own_lab, ["sh", "-c", "hostname; id -u; command -v pct"])
    assert (host.returncode, host.stdout) == (0, b"gpu-box\n0\n/usr/sbin/pct\n")
    container = pct(own_lab, "exec", "200", "--", "sh", "-c", "hostname; id; ls -A /root/orch; ls /proc/sys >/dev/null")
    assert container.returncode == 0, container.stderr
    assert container.stdout == b"ct200\nuid=0(root) gid=0(root) groups=0(root)\n"


def test_the_container_has_the_environment_that_has_torch(real_lab: RealLab) -> None:
    done = pct(real_lab, "exec", "200", "--", "/root/venv/bin/python", "-c", "import sys; print(sys.prefix)")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"/root/venv\n"
    found = pct(real_lab, "exec", "200", "--", "readlink", "/root/venv")
    assert found.stdout.decode().strip() == sys.prefix


def test_the_container_has_only_its_own_processes_and_no_network(real_lab: RealLab) -> None:
    script = "ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm; ls /sys/class/net; cat /proc/net/route | wc -l"
    processes, first, interfaces, routes = pct(real_lab, "exec", "200", "--", "sh", "-c", script).stdout.split()
    assert int(processes) < 10
    assert first.startswith(b"python")
    assert interfaces == b"lo"
    assert int(routes) <= 1  # a heading at most


def test_its_cgroup_is_found_from_the_host_as_on_proxmox(real_lab: RealLab) -> None:
    with real_lab.popen([*SSH, HOST, "pct exec 200 -- cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"started\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"started\n"
        groups = ssh(real_lab, ["sh", "-c", "cat /proc/[0-9]*/cgroup | grep '^0::' | sort -u"]).stdout.decode().split()
        running.stdin.close()
    assert {"0::/", "0::/host", "0::/lxc.monitor/200", "0::/lxc/200/ns", "0::/lxc/200/ns/.lxc"} <= set(groups)


@pytest.mark.parametrize("code", [0, 1, 3, 126, 255])
def test_exit_codes_pass(real_lab: RealLab, code: int) -> None:
    assert pct(real_lab, "exec", "200", "--", "sh", "-c", f"exit {code}").returncode == code


def test_death_by_signal_and_a_missing_program_have_the_codes_of_a_shell(real_lab: RealLab) -> None:
    assert pct(real_lab, "exec", "200", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert pct(real_lab, "exec", "200", "--", "no-such-program").returncode == 127
    assert pct(real_lab, "exec", "200", "--", "/etc/passwd").returncode == 126


def test_arguments_and_streams_are_not_touched(real_lab: RealLab) -> None:
    data = bytes(range(256)) * 4000
    assert pct(real_lab, "exec", "200", "--", "cat", stdin=data).stdout == data
    words = ["a b", "", "$HOME", "'", '"', "*", "\n", "-x", "ä"]
    done = pct(real_lab, "exec", "200", "--", "printf", "[%s]", *words)
    assert done.stdout.decode() == "".join(f"[{word}]" for word in words)
    split = pct(real_lab, "exec", "200", "--", "sh", "-c", "echo out; echo err >&2")
    assert (split.stdout, split.stderr) == (b"out\n", b"err\n")


def test_a_terminal_is_a_terminal(real_lab: RealLab) -> None:
    done = real_lab.run(["ssh", "-tt", HOST, "pct exec 200 -- sh -c 'test -t 0 && test -t 1 && echo tty'"])
    assert done.stdout.split() == [b"tty"]


# -- pct ---------------------------------------------------------------------------------------------


def test_the_environment_is_the_hosts_unless_told_otherwise(real_lab: RealLab) -> None:
    script = ["sh", "-c", "FOO=bar SSL_CERT_DIR=/x pct exec 200 -- env"]
    kept = ssh(real_lab, script).stdout.decode().splitlines()
    assert {"FOO=bar", "HOME=/root", "container=lxc", "PATH=/sbin:/bin:/usr/sbin:/usr/bin"} <= set(kept)
    assert not [line for line in kept if line.startswith("SSL_CERT")]
    cleared = ssh(real_lab, ["env", "FOO=bar", "pct", "exec", "200", "--keep-env", "0", "--", "env"])
    lines = cleared.stdout.decode().splitlines()
    assert {"container=lxc", "TERM=linux"} <= set(lines)
    assert not [line for line in lines if line.startswith(("FOO=", "HOME=", "USER="))]


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["exec", "999", "--", "true"], 2, "Configuration file 'nodes/gpu-box/lxc/999.conf' does not exist\n"),
        (["status", "999"], 2, "Configuration file 'nodes/gpu-box/lxc/999.conf' does not exist\n"),
        (["exec", "200"], 255, "missing command\n"),
        (["exec", "abc", "--", "true"], 255, "400 Parameter verification failed.\nvmid: type check ('integer') failed"),
        (["exec", "200", "ls", "-l"], 255, "Unknown option: l\n400 unable to parse option\n"),
        (["exec", "200", "--bogus", "--", "true"], 255, "Unknown option: -bogus\n400 unable to parse option\n"),
        (["frobnicate"], 255, "ERROR: unknown command 'pct frobnicate'\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]\n"),
        ([], 255, "USAGE: pct <COMMAND> [ARGS] [OPTIONS]\n"),
        (["status", "200", "extra"], 255, "400 too many arguments\n"),
        (["start", "200"], 255, "CT 200 already running\n"),
    ],
)
def test_pct_refuses_in_the_words_of_the_real_one(real_lab: RealLab, argv: list[str], code: int, text: str) -> None:
    done = pct(real_lab, *argv)
    assert done.stderr.decode().startswith(text)
    assert done.returncode == code


def test_pct_tells_of_the_container(real_lab: RealLab) -> None:
    assert pct(real_lab, "status", "200").stdout == b"status: running\n"
    rows = pct(real_lab, "list").stdout.decode().splitlines()
    assert rows[0] == f"{'VMID':<10} {'Status':<10} {'Lock':<12} {'Name':<20}"
    assert rows[1] == f"{'200':<10} {'running':<10} {'':<12} {'ct200':<20}"
    assert b"hostname: ct200\n" in pct(real_lab, "config", "200").stdout


def test_a_locked_container_still_runs_commands(own_lab: RealLab) -> None:
    config = "/etc/pve/lxc/200.conf"
    own_lab.host_run(["sh", "-c", f"echo 'lock: backup' >> {config}"])
    assert pct(own_lab, "exec", "200", "--", "true").returncode == 0
    refused = pct(own_lab, "stop", "200")
    assert (refused.returncode, refused.stderr) == (255, b"CT is locked (backup)\n")


def test_every_start_is_counted_and_can_be_made_to_cost(real_lab: RealLab) -> None:
    before = real_lab.pct_starts()
    pct(real_lab, "status", "200")
    pct(real_lab, "nonsense")
    assert real_lab.pct_starts() == before + 2
    assert real_lab.pct_log()[-1].endswith(" nonsense")
    real_lab.set_pct_cost(0.3)
    try:
        user, system = ssh(
            real_lab, ["sh", "-c", "pct status 200 >/dev/null; times >/tmp/times; tail -n 1 /tmp/times"]
        ).stdout.split()
        spent = sum(float(part.strip(b"s").partition(b"m")[2]) for part in (user, system))
        assert spent >= 0.25  # the shell counts hundredths, and cuts what is less off each of the two
    finally:
        real_lab.set_pct_cost(0)


def test_another_login_needs_sudo_and_may_only_pct(real_lab: RealLab) -> None:
    trainer = "trainer@10.1.2.6"
    plain = ssh(real_lab, ["/usr/sbin/pct", "status", "200"], to=trainer)
    assert plain.returncode == 255
    assert b"please run as root" in plain.stderr or b"Permission denied" in plain.stderr
    as_root = ssh(real_lab, ["sudo", "-n", "/usr/sbin/pct", "exec", "200", "--", "id", "-u"], to=trainer)
    assert (as_root.returncode, as_root.stdout) == (0, b"0\n"), as_root.stderr
    other = ssh(real_lab, ["sudo", "-n", "id"], to=trainer)
    assert other.returncode == 1
    assert b"a password is required" in other.stderr


def test_a_stopped_container_says_so_and_starts_again(own_lab: RealLab) -> None:
    assert pct(own_lab, "exec", "200", "--", "sh", "-c", "echo kept > /root/kept").returncode == 0
    own_lab.stop_container()
    assert not own_lab.container_running()
    assert pct(own_lab, "status", "200").stdout == b"status: stopped\n"
    refused = pct(own_lab, "exec", "200", "--", "true")
    assert (refused.returncode, refused.stderr) == (255, b"container '200' not running!\n")
    assert pct(own_lab, "start", "200").returncode == 0
    assert pct(own_lab, "exec", "200", "--", "cat", "/root/kept").stdout == b"kept\n"
    assert pct(own_lab, "shutdown", "200").returncode == 0
    assert not own_lab.container_running()
    own_lab.start_container()
    assert own_lab.container_running()


# -- the levers --------------------------------------------------------------------------------------


def test_a_program_can_be_hidden(own_lab: RealLab) -> None:
    have = ["exec", "200", "--", "sh", "-c", "PATH=/usr/local/bin:/usr/bin:/bin command -v python3"]
    assert pct(own_lab, *have).returncode == 0
    own_lab.hide_program("python3")
    assert pct(own_lab, *have).returncode == 127 or pct(own_lab, *have).stdout == b""
    own_lab.show_program("python3")
    assert pct(own_lab, *have).returncode == 0


def test_the_link_stalls_and_comes_back(own_lab: RealLab) -> None:
    quick = ["ssh", "-o", "ConnectTimeout=1", HOST, "true"]
    assert own_lab.run(quick).returncode == 0
    own_lab.link_down()
    assert own_lab.run(quick).returncode == 255
    own_lab.link_up()
    eventually(lambda: own_lab.run(quick).returncode == 0, "the link comes back")


def test_sshd_restarts(own_lab: RealLab) -> None:
    own_lab.stop_sshd()
    refused = own_lab.run([*SSH, HOST, "true"])
    assert refused.returncode == 255
    assert b"Connection refused" in refused.stderr
    own_lab.start_sshd()
    own_lab.restart_sshd()
    assert ssh(own_lab, ["true"]).returncode == 0


# -- the walls ---------------------------------------------------------------------------------------

REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
except OSError as error:
    print(error.strerror)
"""


def test_nothing_outside_can_be_reached(real_lab: RealLab) -> None:
    for address in (default_gateway(), "192.0.2.1"):
        tried = [sys.executable, "-c", REACH, address, "22"]
        assert real_lab.run(tried).stdout == b"Network is unreachable\n"
        from_host = ssh(real_lab, [str(Path(sys.executable).resolve()), "-c", REACH, address, "22"])
        assert from_host.stdout == b"Network is unreachable\n", from_host.stderr


def test_the_machines_own_loopback_cannot_be_reached(real_lab: RealLab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert real_lab.run([sys.executable, "-c", REACH, "127.0.0.1", port]).stdout == b"Connection refused\n"


def default_gateway() -> str:
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000":
            return socket.inet_ntoa(bytes.fromhex(fields[2])[::-1])
    return "198.51.100.1"


def test_two_labs_do_not_meet(real_lab: RealLab, own_lab: RealLab) -> None:
    for lab in (real_lab, own_lab):
        done = pct(lab, "exec", "200", "--", "sh", "-c", f"echo {lab.record.id} > /root/whose; cat /root/whose")
        assert done.stdout.decode().strip() == lab.record.id
    assert pct(real_lab, "exec", "200", "--", "cat", "/root/whose").stdout.decode().strip() == real_lab.record.id
    spaces = {*real_lab.record.network_namespace_inodes, *own_lab.record.network_namespace_inodes}
    assert len(spaces) == 4
    own_lab.down()
    assert pct(real_lab, "exec", "200", "--", "true").returncode == 0


# -- the command line --------------------------------------------------------------------------------


def orch_lab(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "lab", *argv],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )  # type: ignore[call-overload,no-any-return]


def test_shell_passes_folder_environment_and_exit_code(real_lab: RealLab, tmp_path: Path) -> None:
    script = 'pwd; echo "$ORCH_LAB_RECORD"; ls -A ~/.ssh; exit 7'
    done = orch_lab("shell", "--lab", real_lab.record.id, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    folder, record, *ssh_files = done.stdout.splitlines()
    assert folder == str(tmp_path)
    assert ssh_files == ["config", "id_ed25519", "id_ed25519.pub", "known_hosts"]
    inode = int(real_lab.run(["stat", "-Lc", "%i", "/proc/self/ns/net"]).stdout)
    assert inode in json.loads(Path(record).read_text())["network_namespace_inodes"]


def test_status_tells_the_truth(own_lab: RealLab) -> None:
    assert "container 200: running" in orch_lab("status", "--lab", own_lab.record.id).stdout
    own_lab.stop_container()
    assert "container 200: stopped" in orch_lab("status", "--lab", own_lab.record.id).stdout


# -- taking it down ----------------------------------------------------------------------------------


def members(lab: RealLab) -> list[int]:
    """Every process of the lab, as the machine numbers them."""
    group = f"/{lab.record.cgroup}"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "cgroup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(line.startswith(f"0::{group}") for line in lines) and start_ticks(int(folder.name)) is not None:
            found.append(int(folder.name))
    return found


def traces(lab: RealLab) -> list[str]:
    """What is left of a lab anywhere on the machine."""
    found = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{lab.record.cgroup}")]
    found += [f"process {pid}" for pid in members(lab)]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if lab.folder.name in (folder / "mountinfo").read_text():
                found.append(f"mounts of {folder.name}: {(folder / 'cmdline').read_text()}")
            inode = (folder / "ns/net").stat().st_ino
            if inode in lab.record.network_namespace_inodes:
                found.append(f"network namespace of {folder.name}: {(folder / 'cmdline').read_text()}")
        except OSError:
            continue
    if lab.folder.exists():
        found.append(str(lab.folder))
    return found


def test_down_leaves_nothing(own_lab: RealLab) -> None:
    script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo started"
    assert pct(own_lab, "exec", "200", "--", "sh", "-c", script).stdout == b"started\n"
    assert len(members(own_lab)) >= 5
    own_lab.down()
    assert traces(own_lab) == []


def test_down_ends_what_was_forgotten_on_the_controllers_side(own_lab: RealLab) -> None:
    forgotten = own_lab.popen(["sleep", "1000"])
    eventually(lambda: Path(f"/proc/{forgotten.pid}/comm").read_text() == "sleep\n", "it is in the namespace")
    own_lab.down()
    assert forgotten.wait() == -signal.SIGKILL
    assert traces(own_lab) == []


def test_a_reused_namespace_number_harms_no_stranger(own_lab: RealLab) -> None:
    stranger = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
    forgotten = own_lab.popen(["sleep", "1000"])
    try:
        for process in (stranger, forgotten):
            comm = Path(f"/proc/{process.pid}/comm")
            eventually(lambda comm=comm: comm.read_text() == "sleep\n", "it is in its namespace")  # type: ignore[misc]
        own_lab.record.process("controller").send(signal.SIGKILL)
        eventually(own_lab.record.stale, "the controller's process is gone")
        inodes = {Path(f"/proc/{process.pid}/ns/net").stat().st_ino for process in (stranger, forgotten)}
        own_lab.record = replace(own_lab.record, network_namespace_inodes=tuple(inodes))
        own_lab.down()
        assert stranger.poll() is None
        assert forgotten.wait() == -signal.SIGKILL
    finally:
        for process in (stranger, forgotten):
            process.kill()
            process.wait()


def test_a_lab_can_be_taken_down_from_inside(own_lab: RealLab) -> None:
    script = f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n" + DOWN_FROM_INSIDE
    done = own_lab.run([sys.executable, "-c", script])
    assert (done.returncode, done.stdout) == (0, b"down\n"), done.stderr
    assert traces(own_lab) == []


DOWN_FROM_INSIDE = """
from orchestrator.lab.choice import open_lab
from orchestrator.lab.records import choose_lab
open_lab(choose_lab()).down()
print("down")
"""


def test_nvidia_smi_is_on_the_host_and_in_the_container(real_lab: RealLab) -> None:
    listed = ssh(real_lab, ["nvidia-smi", "-L"]).stdout.decode().splitlines()
    assert len(listed) == 8
    assert listed[0].startswith("GPU 0: NVIDIA H200 (UUID: GPU-")
    fields = ["--query-gpu=index,name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    rows = pct(real_lab, "exec", "200", "--", "nvidia-smi", *fields).stdout.decode().splitlines()
    assert rows[7] == "7, NVIDIA H200, 143771, 0"


@pytest.mark.parametrize("role", ["sshd", "init", "controller", "lxc monitor", "container's init"])
def test_down_cleans_up_after_a_part_was_killed(own_lab: RealLab, role: str) -> None:
    victim = {
        "sshd": lambda: find_member(own_lab, "sshd:"),
        "init": lambda: own_lab.record.process("init").pid,
        "controller": lambda: own_lab.record.process("controller").pid,
        "lxc monitor": lambda: find_member(own_lab, "[lxc monitor]"),
        "container's init": lambda: find_member(own_lab, "pid1.py"),
    }[role]()
    os.kill(victim, signal.SIGKILL)
    own_lab.down()
    assert traces(own_lab) == []


def find_member(lab: RealLab, text: str) -> int:
    for pid in members(lab):
        if text in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
            return pid
    raise AssertionError(f"no process {text} in {members(lab)}")


def test_a_dead_lab_is_stale_and_removed_as_such(own_lab: RealLab, real_lab: RealLab) -> None:
    assert not own_lab.record.stale()
    own_lab.record.process("init").send(signal.SIGKILL)
    eventually(lambda: own_lab.record.stale(), "a lab without its process 1 is stale")
    done = orch_lab("down", "--stale")
    assert done.returncode == 0, done.stderr
    assert traces(own_lab) == []
    assert real_lab.record.id in {record.id for record in find_labs()}


def test_a_stranger_with_a_recorded_pid_is_left_alone(own_lab: RealLab) -> None:
    record = read_record(own_lab.record.file)
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        sham = LabProcess("init", stranger.pid, record.process("init").start_ticks)
        sham.send(signal.SIGKILL)
        assert not sham.alive()
        assert stranger.poll() is None
        own_lab.down()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


DIE_WHILE_MAKING = """
import os, signal
from orchestrator.lab.real import RealLab
def note(self, **changes):
    if changes.get("processes"):
        os.kill(os.getpid(), signal.SIGKILL)
    given(self, **changes)
given, RealLab._note = RealLab._note, note
RealLab.up()
"""


def test_a_lab_whose_maker_was_killed_is_stale(real_lab: RealLab) -> None:
    before = {record.id for record in find_labs()}
    made = subprocess.run([sys.executable, "-c", DIE_WHILE_MAKING], cwd=PROJECT)
    assert made.returncode == -signal.SIGKILL
    new = [record for record in find_labs() if record.id not in before and record.kind == "real"]
    (left,) = [record for record in new if record.stale()]
    lab = RealLab(left)
    assert members(lab)
    lab.down()
    assert traces(lab) == []


def test_the_lab_can_live_in_memory_where_its_disk_cannot_carry_an_overlay() -> None:
    require_real_lab()
    # /var/lib/orch-lab is an overlay in there, which no other overlay may be laid on.
    prepare = (
        "set -e; d=$(mktemp -d); mount -t tmpfs t $d; mkdir -p $d/u $d/w /var/lib/orch-lab;"
        "mount -t overlay o -o lowerdir=/var/lib/orch-lab,upperdir=$d/u,workdir=$d/w /var/lib/orch-lab;"
        'set +e; "$@"; code=$?; umount -l $d; rmdir $d; exit $code'
    )
    script = (
        "from orchestrator.lab.real import RealLab\nlab = RealLab.up()\ntry:\n"
        " print(lab.run(['ssh', 'root@10.1.2.6', 'pct exec 200 -- hostname']).stdout)\n"
        " print(lab.host_run(['mount']).stdout.count(b'/memory/upper'))\nfinally:\n lab.down()"
    )
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, "sh"]
    done = subprocess.run([*private, sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout.split() == ["b'ct200\\n'", "3"], done.stderr


def test_a_failure_while_it_is_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    require_real_lab()
    mine = {record.id for record in find_labs() if record.owner and record.owner.pid == os.getpid()}
    monkeypatch.setattr(RealLab, "start_sshd", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RealLab.up()
    assert {record.id for record in find_labs() if record.owner and record.owner.pid == os.getpid()} == mine
