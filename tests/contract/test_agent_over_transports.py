"""An agent, and a tree, through every combination of transport and container kind."""

import asyncio
import os
import random
import signal

import pytest

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import NoPythonError
from orchestrator.agent.tree import pull_tree, push_tree, scan_folder
from orchestrator.errors import OutcomeUnknownError
from tests.waiting import until


@pytest.fixture(scope="module")
def place(combination):
    return combination


def test_one_start_then_trees_both_ways(place, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for number in range(20):
        (source / "deep" / str(number)).write_bytes(random.Random(number).randbytes(100_000))
    before = place.doubles.pct_starts()

    async def work():
        session = await AgentSession.open(place.transport, pythons=["/nonexistent/python"])
        try:
            pushed = await push_tree(session, scan_folder(source), str(tmp_path / "orch" / "releases"))
            again = await push_tree(session, scan_folder(source), str(tmp_path / "orch" / "releases"))
            pulled = await pull_tree(session, pushed.path, tmp_path / "back")
            return pushed, again, pulled
        finally:
            await session.close()

    pushed, again, pulled = place.do(work())
    assert pushed.bytes_sent == pulled.bytes_received == 2_000_000
    assert again.already_there and again.bytes_sent == 0
    assert scan_folder(tmp_path / "back").tree_hash == pushed.tree_hash
    if place.target.kind == "pct":
        assert place.doubles.pct_starts() == before + 1


def test_close_leaves_no_agent(place, tmp_path):
    async def work():
        session = await AgentSession.open(place.transport)
        script = f"echo $PPID > {tmp_path}/pid"
        await session.request("run_batch", commands=[{"argv": ["sh", "-c", script], "timeout_s": 10}])
        agent = int((tmp_path / "pid").read_text())
        os.kill(agent, 0)
        await session.close()
        await until(lambda: not os.path.exists(f"/proc/{agent}"), "the agent ends")

    place.do(work())


def test_a_killed_agent_is_outcome_unknown(place, tmp_path):
    async def work():
        session = await AgentSession.open(place.transport)
        commands = [{"argv": ["sh", "-c", f"echo $PPID > {tmp_path}/pid; sleep 20"], "timeout_s": 30}]
        request = asyncio.ensure_future(session.request("run_batch", commands=commands))
        pid = tmp_path / "pid"
        await until(lambda: pid.exists() and pid.read_text(), "the command runs")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        with pytest.raises(OutcomeUnknownError):
            await request
        await session.close()

    place.do(work())


def test_no_interpreter(place, monkeypatch):
    async def work():
        with pytest.raises(NoPythonError, match="tried /nonexistent/a, /nonexistent/b"):
            await AgentSession.open(place.transport, pythons=["/nonexistent/a", "/nonexistent/b"])

    monkeypatch.setattr("orchestrator.agent.client.LAST_RESORT", "/nonexistent/python3")
    place.do(work())
