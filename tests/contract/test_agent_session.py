"""A real agent, over a real local process, under every interpreter that can be found."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from orchestrator.agent.bundle import build_bundle
from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import LOOKS, AgentOpError, NoPythonError
from orchestrator.agent.far import files
from orchestrator.agent.far.errors import OpError
from orchestrator.agent.far.ops import OPS
from orchestrator.agent.far.process import identity_of
from orchestrator.errors import ContainerError, DeadlineError, OutcomeUnknownError, UnreachableError
from tests.local_agent import LocalStarter, interpreters
from tests.waiting import until


@pytest.fixture(params=interpreters())
def python(request):
    return request.param


@contextlib.asynccontextmanager
async def open_agent(python=sys.executable):
    starter = LocalStarter()
    session = await AgentSession.open(starter, pythons=[python])
    session.process = starter.processes[0]
    try:
        yield session
    finally:
        await session.close()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def group_members(pgid):
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stream:
                fields = stream.read().rsplit(")", 1)[1].split()
                if int(fields[2]) == pgid:
                    members.append(int(name))
    return members


async def test_hello(python):
    async with open_agent(python) as session:
        assert session.hello.agent_hash == build_bundle().agent_hash
        assert tuple(int(part) for part in session.hello.python_version.split(".")) >= (3, 8)
        assert session.hello.uid == os.getuid()
        with open("/proc/sys/kernel/random/boot_id") as stream:
            assert session.hello.boot_id == stream.read().strip()
        assert (await session.request("hello")).header["executable"] == session.hello.executable


async def test_commands_answer_in_order_each_with_its_own_end(python):
    async with open_agent(python) as session:
        reply = await session.request(
            "run_batch",
            commands=[
                {"argv": ["sh", "-c", "cat; echo err >&2; exit 7"], "timeout_s": 10, "stdin": "in\n"},
                {"argv": ["sh", "-c", "sleep 60 & sleep 60"], "timeout_s": 0.3},
                {"argv": ["/nonexistent/program"], "timeout_s": 5},
                {"argv": ["sh", "-c", "kill -9 $$"], "timeout_s": 5},
                {"argv": ["sh", "-c", "yes | head -c 1000000"], "timeout_s": 10, "output_limit": 1000},
                {"argv": ["printf", "%s", "a b'$HOME\n*\u00e4"], "timeout_s": 5},
                {"argv": ["sh", "-c", "cat; readlink /proc/self/fd/1"], "timeout_s": 5},
            ],
        )
        first, hung, absent, killed, noisy, odd, plain = reply.header["results"]
        assert (first["exit_code"], first["stdout"], first["stderr"]) == (7, "in\n", "err\n")
        assert (hung["exit_code"], hung["timed_out"]) == (None, True)
        assert absent["exit_code"] == 127 and "No such file" in absent["stderr"]
        assert killed["exit_code"] == 137
        assert (noisy["exit_code"], len(noisy["stdout"]), noisy["truncated"]) == (0, 1000, True)
        assert odd["stdout"] == "a b'$HOME\n*\u00e4"
        assert plain["exit_code"] == 0


async def test_a_timed_out_command_leaves_no_process(tmp_path):
    async with open_agent() as session:
        script = f"echo $$ > {tmp_path}/pid; sleep 60 & sleep 60"
        await session.request("run_batch", commands=[{"argv": ["sh", "-c", script], "timeout_s": 0.5}])
        group = int((tmp_path / "pid").read_text())
        await until(lambda: not group_members(group))


async def test_no_command_survives_the_agent(tmp_path):
    async with open_agent() as session:
        script = f"echo $$ > {tmp_path}/pid; sleep 60 & sleep 60"
        commands = [{"argv": ["sh", "-c", script], "timeout_s": 60}]
        request = asyncio.ensure_future(session.request("run_batch", commands=commands))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        group = int((tmp_path / "pid").read_text())
        assert group_members(group)
        await session.close()
        with pytest.raises(OutcomeUnknownError):
            await request
        await until(lambda: not group_members(group))


async def test_a_slow_request_does_not_hold_up_a_quick_one():
    async with open_agent() as session:
        slow = asyncio.ensure_future(
            session.request("run_batch", commands=[{"argv": ["sleep", "30"], "timeout_s": 30}])
        )
        await session.request("hello")
        assert not slow.done()
        slow.cancel()


async def test_a_late_answer_is_a_deadline_and_the_op_is_given_up(tmp_path):
    async with open_agent() as session:
        script = f"echo $$ > {tmp_path}/pid; sleep 60"
        with pytest.raises(DeadlineError, match="run_batch"):
            commands = [{"argv": ["sh", "-c", script], "timeout_s": 60}]
            await session.request("run_batch", timeout_s=1.0, commands=commands)
        group = int((tmp_path / "pid").read_text())
        await until(lambda: not group_members(group))


async def test_a_killed_agent_is_outcome_unknown_and_later_requests_are_not_sent():
    async with open_agent() as session:
        request = asyncio.ensure_future(
            session.request("run_batch", commands=[{"argv": ["sleep", "5"], "timeout_s": 5}])
        )
        await session.request("hello")
        os.killpg(session.process.pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknownError):
            await request
        with pytest.raises(UnreachableError, match="not sent"):
            await session.request("hello")


@pytest.mark.parametrize("changed", [False, True])
async def test_a_link_that_is_lost_while_only_looking_is_told_as_such(tmp_path, changed):
    (tmp_path / "log").write_text("step 1\n")
    async with open_agent() as session:
        if changed:
            await session.request("lease_acquire", base=str(tmp_path), who="me", host="here", pid=1)
        following = session.stream("follow_file", path=str(tmp_path / "log"), offset=0)
        assert (await anext(following)).body == b"step 1\n"
        os.killpg(session.process.pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknownError if changed else UnreachableError) as lost:
            await anext(following)
        assert ("may or may not have been done" if changed else "nothing was changed") in lost.value.what


def test_what_only_looks_is_known_to_the_agent():
    assert set(OPS) >= LOOKS


async def test_a_refusal_carries_its_kind_and_a_bug_its_traceback(python):
    async with open_agent(python) as session:
        with pytest.raises(AgentOpError) as refused:
            await session.request("read_file", path="/nonexistent")
        assert refused.value.kind == "missing"
        with pytest.raises(AgentOpError) as unknown:
            await session.request("no_such_op")
        assert unknown.value.kind == "unknown_op"
        with pytest.raises(AgentOpError) as bug:
            await session.request("read_file")
        assert bug.value.kind == "bug"
        assert 'descriptor = open_file(params["path"])' in bug.value.evidence


async def test_no_interpreter_says_what_was_tried(tmp_path):
    broken = tmp_path / "python-broken"
    broken.write_text("#!/bin/sh\necho 'cannot load libc' >&2\nexit 1\n")
    broken.chmod(0o755)
    starter = LocalStarter()
    path = os.environ["PATH"]
    os.environ["PATH"] = str(tmp_path)
    (tmp_path / "sh").symlink_to("/bin/sh")
    try:
        with pytest.raises(NoPythonError, match=r"nowhere, .*python-broken, python3") as error:
            await AgentSession.open(starter, pythons=["nowhere", str(broken)])
    finally:
        os.environ["PATH"] = path
    assert "cannot load libc" in error.value.evidence
    assert "orch exec" in error.value.way_out
    assert not alive(starter.processes[0].pid)


async def test_the_next_interpreter_is_tried(tmp_path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 'Unknown option: -I' >&2\nexit 2\n")
    old.chmod(0o755)
    session = await AgentSession.open(LocalStarter(), pythons=[str(old), sys.executable])
    assert "python-old will not do (exit 2)" in session.stderr_text()
    await session.close()


async def test_something_else_than_an_agent(tmp_path):
    talker = tmp_path / "python-talker"
    talker.write_text("#!/bin/sh\necho Welcome to the machine\nexit 3\n")
    talker.chmod(0o755)
    with pytest.raises(ContainerError, match="before it was ready"):
        await AgentSession.open(LocalStarter(), pythons=[str(talker)])


async def test_close_ends_the_agent(python):
    async with open_agent(python) as session:
        group = session.process.pid
        assert group_members(group)
    await until(lambda: not group_members(group))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
async def test_a_signal_ends_the_agent_with_its_commands(number, tmp_path):
    async with open_agent() as session:
        script = f"echo $$ > {tmp_path}/pid; sleep 60"
        commands = [{"argv": ["sh", "-c", script], "timeout_s": 60}]
        request = asyncio.ensure_future(session.request("run_batch", commands=commands))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        group = int((tmp_path / "pid").read_text())
        os.killpg(session.process.pid, number)
        with pytest.raises((OutcomeUnknownError, AgentOpError)):
            await request
        await until(lambda: not group_members(group))


async def test_a_malformed_frame_ends_the_agent_with_a_reason():
    async with open_agent() as session:
        await session.process.write(b"\xff" * 64)
        assert (await session.process.wait()).code == 3
        await until(lambda: "malformed frame" in session.stderr_text())


async def test_the_lease_is_exclusive_and_goes_with_the_agent(tmp_path):
    base = str(tmp_path / "orch")
    me = {"base": base, "who": "ann", "host": "laptop", "pid": 42}
    async with open_agent() as first, open_agent() as second:
        await first.request("lease_acquire", **me)
        await first.request("lease_assert", base=base)
        await first.request("lease_acquire", **me)
        with pytest.raises(AgentOpError, match=r"ann on laptop \(pid 42\)") as busy:
            await second.request("lease_acquire", base=base, who="bob", host="desk", pid=1)
        assert busy.value.kind == "busy"
        with pytest.raises(AgentOpError) as missing:
            await second.request("lease_assert", base=base)
        assert missing.value.kind == "no_lease"
        os.killpg(first.process.pid, signal.SIGKILL)
        await first.process._process.wait()
        assert (await second.request("lease_acquire", base=base, who="bob", host="desk", pid=1)).header["holder"][
            "who"
        ] == "bob"


@pytest.mark.parametrize("before", ["", '{"who": "eve", "host": "old", "pid": 9, "since": 1, "agent": {"pid": 0}}'])
async def test_a_holder_that_has_not_written_its_name_yet_is_not_taken_for_the_one_before(tmp_path, before):
    name = {"who": "ann", "host": "laptop", "pid": 42, "since": 1.0, "agent": identity_of(os.getpid())}
    path = tmp_path / "lease.lock"
    path.write_text(before)
    with path.open("r+b") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        async with open_agent() as session:
            late = threading.Timer(0.1, lambda: path.write_text(json.dumps(name)))
            late.start()
            with pytest.raises(AgentOpError, match=r"ann on laptop \(pid 42\)"):
                await session.request("lease_acquire", base=str(tmp_path), who="bob", host="desk", pid=1)
            late.join()


async def test_a_lease_whose_file_was_replaced_is_lost(tmp_path):
    async with open_agent() as session:
        await session.request("lease_acquire", base=str(tmp_path), who="a", host="b", pid=1)
        (tmp_path / "lease.lock").unlink()
        with pytest.raises(AgentOpError, match="replaced"):
            await session.request("lease_assert", base=str(tmp_path))


async def test_a_command_does_not_inherit_the_lease_or_the_stream(tmp_path):
    async with open_agent() as session:
        await session.request("lease_acquire", base=str(tmp_path), who="a", host="b", pid=1)
        commands = [{"argv": ["ls", "-l", "/proc/self/fd"], "timeout_s": 5}]
        listing = (await session.request("run_batch", commands=commands)).header["results"][0]["stdout"]
        assert "lease.lock" not in listing
        # total, 0 1 2, and the folder being listed
        assert len(listing.strip().splitlines()) == 5


async def test_read_file_by_offset(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    async with open_agent() as session:
        reply = await session.request("read_file", path=str(tmp_path / "f"), offset=3, limit=4)
        assert (reply.body, reply.header["size"]) == (b"3456", 10)
        reply = await session.request("read_file", path=str(tmp_path / "f"), offset=-3)
        assert (reply.body, reply.header["offset"]) == (b"789", 7)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(AgentOpError, match="regular"):
            await session.request("read_file", path=str(tmp_path / "pipe"))


async def test_follow_file_from_before_it_exists_through_truncation_and_rotation(tmp_path):
    log = tmp_path / "run.log"
    async with open_agent() as session:
        events = session.stream("follow_file", path=str(log))

        async def next_event():
            return await asyncio.wait_for(anext(events), 10)

        assert (await next_event()).header["what"] == "waiting"
        log.write_bytes(b"one\n")
        assert (await next_event()).body == b"one\n"
        with log.open("ab") as stream:
            stream.write(b"two\n")
        event = await next_event()
        assert (event.body, event.header["offset"]) == (b"two\n", 4)
        log.write_bytes(b"x")
        assert (await next_event()).header["what"] == "truncated"
        assert (await next_event()).body == b"x"
        log.rename(tmp_path / "run.log.1")
        log.write_bytes(b"new file\n")
        assert (await next_event()).header["what"] == "replaced"
        assert (await next_event()).body == b"new file\n"
        await events.aclose()
        await session.request("hello")


async def test_a_slow_reader_slows_the_far_side_down(tmp_path):
    log = tmp_path / "big.log"
    with log.open("wb") as stream:
        stream.truncate(40 * 1024 * 1024)
    async with open_agent() as session:
        async with session.exchange("follow_file", path=str(log)) as exchange:
            await exchange.receive()
            for _ in range(200):  # time enough to send all of it, if it were allowed to
                await session.request("hello")
            held = sum(len(reply.body) for reply in exchange._arrived)
            assert held <= 9 * 1024 * 1024
            got = 256 * 1024
            while got < 40 * 1024 * 1024:
                got += len((await asyncio.wait_for(exchange.receive(), 10)).body)
        await session.request("hello")


def test_removing_stays_below_its_base(tmp_path):
    base, outside = tmp_path / "orch", tmp_path / "outside"
    for folder in (base / "a" / "deep", outside):
        folder.mkdir(parents=True)
        (folder / "kept").write_text("x")
    (base / "a" / "link").symlink_to(outside)
    (base / "way").symlink_to(outside)
    for path in (base, outside, base / ".." / "outside", base / "way" / "kept", "relative"):
        with pytest.raises(OpError) as refused:
            files.remove_below(str(base), str(path))
        assert refused.value.kind == "bad_path", path
    assert files.remove_below(str(base), str(base / "a"))
    assert not (base / "a").exists() and (outside / "kept").exists()
    assert not files.remove_below(str(base), str(base / "a"))


def test_what_the_agent_prints_goes_to_stderr_and_its_stdin_is_nobody_elses():
    script = (
        "import os, sys; from orchestrator.agent.far.server import take_over_streams\n"
        "stdin, stdout = take_over_streams()\n"
        "print('noise', flush=True); os.system('echo more noise; cat')\n"
        "os.write(stdout, os.read(stdin, 100))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=b"frames", capture_output=True, timeout=30)
    assert done.stdout == b"frames"
    assert done.stderr == b"noise\nmore noise\n"


async def test_a_request_given_up_while_it_is_written_spoils_nothing():
    async with open_agent() as session:
        write, half_way, go_on = session.process.write, asyncio.Event(), asyncio.Event()

        async def halting_write(data):
            if len(data) <= 4096:  # a beat, or the next request
                return await write(data)
            await write(data[:4096])
            half_way.set()
            await go_on.wait()
            return await write(data[4096:])

        session.process.write = halting_write
        request = asyncio.ensure_future(session.request("hello", body=bytes(1_000_000)))
        await half_way.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        go_on.set()
        await session.request("hello", timeout_s=10)


async def test_close_waits_no_longer_than_it_is_told_for_an_agent_that_hangs():
    starter = LocalStarter()
    session = await AgentSession.open(starter)
    (process,) = starter.processes
    os.kill(process.pid, signal.SIGSTOP)
    session.close_limit_s = 0.1
    closing = asyncio.create_task(session.close())
    try:
        async with asyncio.timeout(2.5):  # less than it waits for an agent that has work to end
            while not process.aborted:
                await asyncio.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await closing
