"""The embedded lab: what sshd and pct do, done by a process that any user may start, with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from orchestrator.inventory.loader import load_inventory
from orchestrator.lab.choice import open_lab
from orchestrator.lab.doubles.container import ROOTS_TMUX, marked
from orchestrator.lab.embedded import EmbeddedLab, namespaces_allowed
from orchestrator.lab.records import LabError, find_labs
from tests.waiting import eventually

pytestmark = pytest.mark.lab
PROJECT = Path(__file__).parents[2]


def ssh(lab: EmbeddedLab, argv: list[str], *, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return lab.run(lab.ssh_argv(shlex.join(argv)), stdin=stdin)


def pct(lab: EmbeddedLab, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return ssh(lab, ["pct", *argv], stdin=stdin)


@pytest.fixture(params=["namespaces", "plain"])
def own_lab(request: pytest.FixtureRequest) -> Iterator[EmbeddedLab]:
    """One that the test may break, of both makes."""
    if request.param == "namespaces" and not namespaces_allowed():
        pytest.skip("this machine lets no user make namespaces")
    lab = EmbeddedLab.up(bound=True, namespaces=request.param == "namespaces")
    yield lab
    if lab.folder.exists():
        lab.down()


# -- the server does what sshd does ------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 126, 255])
def test_exit_codes_pass(embedded_lab: EmbeddedLab, code: int) -> None:
    assert ssh(embedded_lab, ["sh", "-c", f"exit {code}"]).returncode == code
    assert pct(embedded_lab, "exec", "200", "--", "sh", "-c", f"exit {code}").returncode == code


def test_death_by_signal_and_a_missing_program_have_the_codes_of_a_shell(embedded_lab: EmbeddedLab) -> None:
    killed = pct(embedded_lab, "exec", "200", "--", "sh", "-c", "kill -9 $$")
    assert (killed.returncode, killed.stderr) == (128 + 9, b"")
    assert pct(embedded_lab, "exec", "200", "--", "no-such-program").returncode == 127
    assert pct(embedded_lab, "exec", "200", "--", "/etc/passwd").returncode == 126


def test_streams_are_binary_and_apart(embedded_lab: EmbeddedLab) -> None:
    data = bytes(range(256)) * 20000
    done = pct(embedded_lab, "exec", "200", "--", "cat", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data
    split = pct(embedded_lab, "exec", "200", "--", "sh", "-c", "echo out; echo err >&2")
    assert (split.stdout, split.stderr) == (b"out\n", b"err\n")


def test_arguments_are_not_touched(embedded_lab: EmbeddedLab) -> None:
    words = ["a b", "", "$HOME", "'", '"', "*", "\n", "-x", "ä"]
    done = pct(embedded_lab, "exec", "200", "--", "printf", "[%s]", *words)
    assert done.stdout.decode() == "".join(f"[{word}]" for word in words)


async def connection(lab: EmbeddedLab, **options: object) -> asyncssh.SSHClientConnection:
    folder = lab.folder / "ssh"
    return await asyncssh.connect(
        "127.0.0.1", lab.record.port, client_keys=[str(folder / "id_ed25519")], config=None,
        known_hosts=str(folder / "known_hosts"), **options,
    )  # fmt: skip


async def test_a_killed_command_is_told_by_its_signal(embedded_lab: EmbeddedLab) -> None:
    async with await connection(embedded_lab) as link:
        done = await link.run("kill -TERM $$")
        assert (done.exit_status, done.exit_signal[0]) == (-1, "TERM")


async def test_signals_and_the_end_of_input_arrive(embedded_lab: EmbeddedLab) -> None:
    async with await connection(embedded_lab) as link:
        process = await link.create_process("trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done")
        assert await process.stdout.readline() == "ready\n"
        process.send_signal("INT")
        done = await process.wait()
        assert (done.exit_status, done.stdout) == (5, "caught\n")


async def test_many_commands_share_a_connection(embedded_lab: EmbeddedLab) -> None:
    async with await connection(embedded_lab) as link:
        processes = [await link.create_process("cat") for _ in range(20)]
        for number, process in enumerate(processes):
            process.stdin.write(f"{number}\n")
            process.stdin.write_eof()
        assert [(await process.wait()).stdout for process in processes] == [f"{n}\n" for n in range(20)]


async def test_a_terminal_is_a_terminal_of_the_right_size(embedded_lab: EmbeddedLab) -> None:
    async with await connection(embedded_lab) as link:
        script = "pct exec 200 -- sh -c 'tty >/dev/null && stty size; read line; stty size; kill -INT $$'"
        process = await link.create_process(script, term_type="xterm", term_size=(90, 33))
        assert await process.stdout.readline() == "33 90\r\n"
        process.change_terminal_size(120, 40)
        process.stdin.write("go on\n")
        rest = (await process.wait()).stdout
        assert "40 120" in rest


async def test_hanging_up_ends_what_runs_on_a_terminal(embedded_lab: EmbeddedLab) -> None:
    link = await connection(embedded_lab)
    process = await link.create_process("echo $$; exec sleep 1000", term_type="xterm")
    pid = int(await process.stdout.readline())
    link.abort()
    await link.wait_closed()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "a terminal's end hangs its programs up")


async def test_without_a_terminal_a_command_outlives_its_client(embedded_lab: EmbeddedLab) -> None:
    link = await connection(embedded_lab)
    process = await link.create_process("echo $$; cat >/dev/null; exec sleep 1000")
    pid = int(await process.stdout.readline())
    link.abort()
    await link.wait_closed()
    eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "its input ends")
    os.kill(pid, signal.SIGKILL)


async def test_strangers_are_refused(embedded_lab: EmbeddedLab) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        await connection(embedded_lab, username="somebody-else")
    with pytest.raises(asyncssh.PermissionDenied):
        folder = embedded_lab.folder / "ssh"
        key = asyncssh.generate_private_key("ssh-ed25519")
        known_hosts = str(folder / "known_hosts")
        port = embedded_lab.record.port
        await asyncssh.connect("127.0.0.1", port, client_keys=[key], config=None, known_hosts=known_hosts)


# -- the container -----------------------------------------------------------------------------------


def test_pct_speaks_as_in_the_real_lab(embedded_lab: EmbeddedLab) -> None:
    missing = pct(embedded_lab, "exec", "999", "--", "true")
    assert missing.returncode == 2
    assert missing.stderr.startswith(b"Configuration file 'nodes/")
    assert pct(embedded_lab, "status", "200").stdout == b"status: running\n"
    before = embedded_lab.pct_starts()
    assert pct(embedded_lab, "frobnicate").returncode == 255
    assert embedded_lab.pct_starts() == before + 1


def test_the_inventory_names_only_the_lab(embedded_lab: EmbeddedLab) -> None:
    assert embedded_lab.inventory is not None
    inventory = load_inventory(embedded_lab.inventory)
    assert [(host.address, host.port) for host in inventory.hosts.values()] == [("127.0.0.1", embedded_lab.record.port)]
    target = inventory.targets["ct200"]
    assert (target.kind, target.container_id, target.root) == ("pct", 200, str(embedded_lab.folder / "ct200"))
    assert target.payload is not None
    assert target.payload.folder == PROJECT / "remote_payload"
    assert embedded_lab.environment()["ORCH_INVENTORY"] == str(embedded_lab.inventory)


def test_a_container_in_namespaces_has_its_own_processes() -> None:
    if not namespaces_allowed():
        pytest.skip("this machine lets no user make namespaces")
    lab = EmbeddedLab.up(bound=True, namespaces=True)
    try:
        script = "hostname; id -u; ls -d /root/orch; ls -d /proc/[0-9]* | wc -l; nvidia-smi -L | wc -l"
        done = pct(lab, "exec", "200", "--", "sh", "-c", script)
        name, user, home, processes, devices = done.stdout.decode().split()
        assert home == "/root/orch"
        assert (name, user, devices) == ("ct200", "0", "8")
        assert int(processes) < 10
        lab.hide_program("head")
        assert pct(lab, "exec", "200", "--", "head", "/dev/null").returncode in (126, 127)
        lab.show_program("head")
        assert pct(lab, "exec", "200", "--", "head", "/dev/null").returncode == 0
    finally:
        lab.down()


def test_tmux_in_the_container_is_not_the_machines() -> None:
    if not namespaces_allowed() or os.getuid():
        pytest.skip("this machine lets no user make namespaces, or another than root runs the tests")
    Path(ROOTS_TMUX).mkdir(mode=0o700, exist_ok=True)
    lab = EmbeddedLab.up(bound=True, namespaces=True)
    try:
        new = ["tmux", "-f", "/dev/null", "new-session", "-d", "-s", f"of-{lab.record.id}", "sleep 1000"]
        assert pct(lab, "exec", "200", "--", *new).returncode == 0
        told = pct(lab, "exec", "200", "--", "tmux", "list-sessions", "-F", "#{session_name}")
        assert told.stdout.decode().split() == [f"of-{lab.record.id}"]
        here = subprocess.run(["tmux", "list-sessions", "-F", "#{session_name}"], capture_output=True, text=True)
        assert f"of-{lab.record.id}" not in here.stdout
    finally:
        lab.down()


def test_stopping_the_container_kills_all_of_it_and_nothing_else(own_lab: EmbeddedLab) -> None:
    script = "env -i setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo started"
    assert pct(own_lab, "exec", "200", "--", "sh", "-c", script).stdout == b"started\n"
    assert ssh(own_lab, ["sh", "-c", "setsid sleep 2000 >/dev/null 2>&1 </dev/null & echo started"]).returncode == 0
    host, container = own_lab._marks
    assert marked({container})
    own_lab.stop_container()
    assert marked({container}) == []
    assert len(marked({host})) >= 2  # the server and the host's own sleep
    assert not own_lab.container_running()
    refused = pct(own_lab, "exec", "200", "--", "true")
    assert (refused.returncode, refused.stderr) == (255, b"container '200' not running!\n")
    assert pct(own_lab, "start", "200").returncode == 0
    assert own_lab.container_running()
    assert pct(own_lab, "exec", "200", "--", "true").returncode == 0


def test_the_link_stalls_and_comes_back(own_lab: EmbeddedLab) -> None:
    quick = own_lab.ssh_argv("-o", "ConnectTimeout=1", "true")
    quick = [*quick[:-4], *quick[-3:-1], quick[-4], quick[-1]]
    assert own_lab.run(quick).returncode == 0
    own_lab.link_down()
    assert own_lab.run(quick).returncode == 255
    own_lab.link_up()
    eventually(lambda: own_lab.run(quick).returncode == 0, "the link comes back")


def test_the_server_restarts_in_its_place(own_lab: EmbeddedLab) -> None:
    port = own_lab.record.port
    own_lab.restart_sshd()
    assert own_lab.record.port == port
    assert ssh(own_lab, ["true"]).returncode == 0


def test_shell_passes_the_inventory_the_folder_and_the_exit_code(embedded_lab: EmbeddedLab, tmp_path: Path) -> None:
    argv = ["-m", "orchestrator", "lab", "shell", "--embedded", "--lab", embedded_lab.record.id, "--", "sh", "-c"]
    inner = 'pwd; echo "$ORCH_INVENTORY"; exit 7'
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, *argv, inner], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path), str(embedded_lab.inventory)]


# -- taking it down ----------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["none", "server", "container"])
def test_down_leaves_nothing(own_lab: EmbeddedLab, victim: str) -> None:
    script = "env -i setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo started"
    assert pct(own_lab, "exec", "200", "--", "sh", "-c", script).stdout == b"started\n"
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        if victim == "server":
            own_lab.record.process("server").send(signal.SIGKILL)
            eventually(own_lab.record.stale, "a lab without its server is stale")
        elif victim == "container":
            for pid in marked({own_lab._marks[1]}):
                with contextlib.suppress(ProcessLookupError):  # the first was process 1 of the others
                    os.kill(pid, signal.SIGKILL)
        own_lab.down()
        assert marked(set(own_lab._marks)) == []
        assert not own_lab.folder.exists()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_dead_lab_is_not_entered(own_lab: EmbeddedLab) -> None:
    own_lab.record.process("server").send(signal.SIGKILL)
    eventually(own_lab.record.stale, "a lab without its server is stale")
    with pytest.raises(LabError, match="is dead"):
        own_lab.run(["true"])


def test_two_labs_do_not_meet(embedded_lab: EmbeddedLab, own_lab: EmbeddedLab) -> None:
    assert own_lab.record.port != embedded_lab.record.port
    assert set(own_lab._marks).isdisjoint(embedded_lab._marks)
    own_lab.down()
    assert pct(embedded_lab, "exec", "200", "--", "true").returncode == 0
    assert embedded_lab.record.id in {record.id for record in find_labs()}


def test_a_mark_cannot_be_shed() -> None:
    assert resource.RLIMIT_MSGQUEUE == 12
    script = "import resource; resource.setrlimit(12, (5000, 5000)); resource.setrlimit(12, (5001, 5001))"
    user = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.getuid() == 0 else []
    python = interpreter_for_others() if user else sys.executable
    done = subprocess.run([*user, python, "-c", script], capture_output=True, text=True)
    assert "not allowed to raise maximum limit" in done.stderr


DIE_WHILE_MAKING = """
import os, signal
from orchestrator.lab.embedded import EmbeddedLab
EmbeddedLab.start_container = lambda self: os.kill(os.getpid(), signal.SIGKILL)
EmbeddedLab.up()
"""


def test_a_lab_whose_maker_was_killed_is_stale(embedded_lab: EmbeddedLab) -> None:
    before = {record.id for record in find_labs()}
    made = subprocess.run([sys.executable, "-c", DIE_WHILE_MAKING], cwd=PROJECT)
    assert made.returncode == -signal.SIGKILL
    new = [record for record in find_labs() if record.id not in before and record.kind == "embedded"]
    (left,) = [record for record in new if record.stale()]
    assert left.mark is not None
    assert marked({left.mark})
    open_lab(left).down()
    assert marked({left.mark}) == []
    assert not left.path.exists()


# -- another user ------------------------------------------------------------------------------------

AS_NOBODY = """
import os, subprocess
from orchestrator.lab.embedded import EmbeddedLab
lab = EmbeddedLab.up()
try:
    for command in ("id -u; echo $HOME; command -v pct", "pct exec 200 -- sh -c 'echo $((6 * 7)); : > ~/mine'"):
        done = lab.run(lab.ssh_argv(command))
        print(done.stdout.decode(), done.stderr.decode(), done.returncode, flush=True)
finally:
    lab.down()
print(lab.folder.exists())
"""


def interpreter_for_others() -> str:
    """One of this version that another user may run."""
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        # Through a shell: setpriv itself still has root's right to reach any file.
        start = ["sh", "-c", 'exec "$0" -c "$1"', python, ask]
        argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *start]
        done = subprocess.run(argv, capture_output=True, text=True, cwd="/")
        if done.stdout.strip() == wanted:
            return python
    pytest.skip(f"nobody may run a Python {wanted} here")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else; other users are tested as themselves")
def test_it_works_for_a_user_who_is_not_root() -> None:
    python = interpreter_for_others()
    with tempfile.TemporaryDirectory(prefix="orch-nobody-", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(PROJECT / "orchestrator", place / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(PROJECT / "remote_payload", place / "remote_payload")
        shutil.copy(PROJECT / "inventory.yaml", place)
        (place / "home").mkdir()
        shutil.chown(place / "home", 65534, 65534)
        packages = sysconfig.get_path("purelib")
        environment = {"HOME": str(place / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        environment |= {"PYTHONPATH": f"{place}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        done = subprocess.run(
            [*user, "sh", "-c", 'exec "$0" -c "$1"', python, AS_NOBODY],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    if "PermissionError" in done.stderr and packages in done.stderr:
        pytest.skip("nobody may not read this environment's packages")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[0] == "65534"
    assert words[2].endswith("/bin/pct")
    assert words[3:] == ["0", "42", "0", "False"]
