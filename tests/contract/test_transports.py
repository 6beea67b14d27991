"""One contract for every transport, kind of container and way to become root."""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.agent.client import AgentSession
from orchestrator.errors import ContainerError, DeadlineError, OutcomeUnknownError
from tests.contract.places import TRANSPORTS
from tests.waiting import eventually, until

ECHO = "import sys, os; os.write(1, b'\\0'.join(os.fsencode(w) for w in sys.argv[1:]))"
HOSTILE = [
    "a b",
    "",
    "'",
    '"',
    'it\'s "both"',
    "$HOME `id` $(id)",
    "line\nfeed",
    "tab\there",
    "*",
    "[a-z]?{x,y}",
    "~root",
    "\\",
    "\\n",
    "-n",
    "--",
    "--help",
    "Grüße 日本 🚀",
    "a=b",
    "#x",
    "!h;&|<>()",
    " ",
    "\r",
    "%s%d",
]


@pytest.fixture(scope="module")
def place(combination):
    return combination


@pytest.fixture(scope="module", params=[words for words in TRANSPORTS if words != "local"])
def cuttable(request, stage):
    """A kind of place whose connection may be cut: made anew by each call."""
    return lambda *words, **changes: stage.place(request.param, *words, **changes)


def test_hostile_words_arrive_as_they_are(place):
    done = place.run([sys.executable, "-c", ECHO, *HOSTILE])
    assert done.stdout.split(b"\0") == [os.fsencode(word) for word in HOSTILE]
    assert (done.exit_code, done.stderr) == (0, b"")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=6))
def test_any_words_arrive_as_they_are(place, words):
    done = place.run(["/usr/bin/printf", "%s\\0", *words])
    assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in words]


@pytest.mark.parametrize("name", ["-dash", "with space", "a=b", "$x"])
def test_a_program_may_have_any_name(place, name):
    done = place.run([name, "x"])
    assert (done.exit_code, done.stdout) == (127, b"")


def test_binary_data_goes_both_ways_at_once(place):
    data = os.urandom(3_000_000)
    twice = "tee /dev/stderr"
    done = place.run(["sh", "-c", twice], stdin=data)
    assert done.exit_code == 0
    want = hashlib.sha256(data).hexdigest()
    assert [hashlib.sha256(got).hexdigest() for got in (done.stdout, done.stderr)] == [want, want]


@pytest.mark.parametrize("code", [0, 1, 2, 125, 126, 127, 128, 254, 255])
def test_exit_codes_are_the_commands_own(place, code):
    done = place.run(["sh", "-c", f"echo out; echo err >&2; exit {code}"])
    assert (done.exit_code, done.stdout, done.stderr) == (code, b"out\n", b"err\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1])
def test_killed_by_a_signal_is_128_and_the_signal(place, number):
    assert place.run(["sh", "-c", f"kill -{number.value} $$"]).exit_code == 128 + number


def test_what_cannot_be_executed_is_126_or_127(place):
    missing, not_executable = place.run(["/nonexistent"]), place.run(["/etc/passwd"])
    assert (missing.exit_code, not_executable.exit_code) == (127, 126)
    assert b"orch-" not in missing.stderr + not_executable.stderr


def test_stdin_that_is_closed_early_is_no_failure(place):
    done = place.run(["sh", "-c", "exec <&-; head -c 1 /dev/zero | wc -c"], stdin=bytes(4_000_000))
    assert (done.exit_code, done.stdout.strip()) == (0, b"1")
    assert place.run(["true"], stdin=bytes(4_000_000)).exit_code == 0


def test_a_deadline_is_kept_and_says_what_may_still_run(place):
    with pytest.raises(DeadlineError, match=r"within 1 s; it may still run there"):
        place.run(["sleep", "31.5"], timeout_s=1)
    assert place.run(["true"]).exit_code == 0


def test_streams_are_read_while_the_command_runs(place):
    async def talk():
        process = await place.transport.start(["cat"])
        try:
            for word in (b"one", b"two"):
                await process.write(word)
                assert await process.read() == word
            await process.write_eof()
            assert await process.read() == b""
            return await process.wait()
        finally:
            await process.abort()

    assert place.do(talk()).code == 0


def test_many_commands_on_one_connection(place):
    async def many():
        return await asyncio.gather(
            *(place.transport.run(["sh", "-c", f"sleep 0.1; echo {n}"], timeout_s=60) for n in range(8))
        )

    assert [done.stdout for done in place.do(many())] == [b"%d\n" % n for n in range(8)]


def test_abort_and_cancel_leave_no_local_child(place, tmp_path):
    async def cut():
        process = await place.transport.start(["sh", "-c", "echo $$; exec cat"])
        pid = int(await process.read())
        await process.abort()
        await until(lambda: not os.path.exists(f"/proc/{pid}"), "it ends with its stdin")
        runs = ["sh", "-c", f"touch {tmp_path}/runs; exec sleep 33.5"]
        waiting = asyncio.create_task(place.transport.run(runs, timeout_s=60))
        await until((tmp_path / "runs").exists, "the command runs")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    before = children()
    place.do(cut())
    eventually(lambda: children() <= before, "no child is left")
    assert place.run(["true"]).exit_code == 0


def test_one_start_is_one_pct_start(place):
    before = place.doubles.pct_starts()
    place.run(["true"])
    assert place.doubles.pct_starts() - before == (1 if place.target.kind == "pct" else 0)


def test_the_environment_inside_is_the_known_one(place):
    if place.target.kind != "pct":
        pytest.skip("a host has its login's environment")
    names = dict(line.split("=", 1) for line in place.run(["env"]).stdout.decode().splitlines())
    names.pop("PWD", None)
    names.pop("_", None)
    assert names == {
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_a_stopped_or_missing_container_is_named(place):
    if place.target.kind != "pct":
        pytest.skip("no container")
    running, config = place.doubles.running, place.doubles.config
    running.unlink()
    try:
        with pytest.raises(ContainerError, match="container 200 is not running") as stopped:
            place.run(["true"])
        config.rename(config.with_suffix(".away"))
        with pytest.raises(ContainerError, match="container 200 does not exist"):
            place.run(["true"])
    finally:
        config.with_suffix(".away").rename(config)
        running.touch()
    assert stopped.value.way_out.endswith("pct start 200")
    assert "not running" in stopped.value.evidence


def test_a_hundred_megabytes_in_bounded_memory(place):
    if place.target.kind == "pct":
        pytest.skip("the streams are the transport's own")

    async def pour():
        process = await place.transport.start(["sha256sum"])
        chunk, want = bytes(range(256)) * 4096, hashlib.sha256()
        try:
            for _ in range(100):
                want.update(chunk)
                await process.write(chunk)
            await process.write_eof()
            got = await process.read()
            return want.hexdigest().encode(), got.split()[0], (await process.wait()).code
        finally:
            await process.abort()

    before = peak_memory_mib()
    want, got, code = place.do(pour())
    assert (got, code) == (want, 0)
    assert peak_memory_mib() - before < 40


@pytest.mark.parametrize("kind", ["none", "pct"])
@pytest.mark.parametrize("script", ["echo begun; exec sleep 34.5", "echo begun; exec 1>&- 2>&-; sleep 34.5"])
def test_a_cut_link_is_never_a_result(cuttable, kind, script):
    place = cuttable(kind)

    async def cut():
        process = await place.transport.start(["sh", "-c", script])
        try:
            assert await process.read() == b"begun\n"
            place.server.signal_connections(signal.SIGKILL)
            while await process.read():
                pass
            await process.wait()
        finally:
            await process.abort()

    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        place.do(asyncio.wait_for(cut(), 10))


def test_a_silent_peer_is_found_by_keepalive(cuttable):
    place = cuttable(keepalive_interval_s=1, keepalive_count=2)

    async def stall():
        process = await place.transport.start(["cat"])
        try:
            place.server.signal_connections(signal.SIGSTOP)
            assert await process.read() == b""
            await process.wait()
        finally:
            await process.abort()

    with pytest.raises(OutcomeUnknownError):
        place.do(asyncio.wait_for(stall(), 20))


@pytest.mark.parametrize("kind", ["none", "pct"])
def test_a_noisy_slow_far_shell_is_not_heard(cuttable, kind):
    noise = "Permission denied (publickey). Connection refused. container 200 not running!"
    place = cuttable(
        kind,
        lines=[
            "ForceCommand head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2; "
            f"echo '{noise}'; echo '{noise}' >&2; sleep 0.4; eval \"$SSH_ORIGINAL_COMMAND\""
        ],
    )
    done = place.run(["sh", "-c", "cat; echo err >&2; exit 255"], stdin=b"in")
    assert (done.exit_code, done.stdout, done.stderr) == (255, b"in", b"err\n")
    if kind == "pct":
        place.doubles.config.unlink()
        with pytest.raises(ContainerError, match="does not exist"):
            place.run(["true"])


def children():
    """Pids of this process's children that are not dead."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stream:
                    state, parent = stream.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(entry))
    return found


def peak_memory_mib():
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("VmHWM")) / 1024


def test_a_terminal_is_a_terminal_inside(place):
    argv = place.transport.interactive_argv(["sh", "-c", "test -t 0 && test -t 1 && echo terminal $TERM '$x  y'"])
    near, far = os.openpty()
    environment = {**os.environ, "TERM": "screen"}
    with subprocess.Popen(argv, stdin=far, stdout=far, stderr=far, env=environment, start_new_session=True) as process:
        os.close(far)
        seen = b""
        with contextlib.suppress(OSError):  # the end of a terminal is EIO
            while data := os.read(near, 4096):
                seen += data
        process.wait(20)
    os.close(near)
    assert process.returncode == 0, seen
    assert b"terminal " in seen and b"$x  y" in seen


def test_an_agent_runs_over_it_with_one_start(place):
    async def talk():
        before = place.doubles.pct_starts()
        session = await AgentSession.open(place.transport, pythons=[sys.executable])
        try:
            return session.hello.executable, place.doubles.pct_starts() - before
        finally:
            await session.close()

    executable, starts = place.do(talk())
    assert executable == sys.executable
    assert starts == (1 if place.target.kind == "pct" else 0)
