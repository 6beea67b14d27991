"""Runs inside the real container: what its restart, its tmux and its kernel make of them."""

import asyncio

import pytest

from orchestrator.agent.client import AgentSession
from orchestrator.probes.training import RunPhase, judge_run
from orchestrator.transport.quoting import shell_command
from tests.local_agent import LocalProcess
from tests.run_place import GRACEFUL

pytestmark = pytest.mark.real_lab

BASE = "/root/orch-runs-test/orch"
CLEAN = ("/usr/bin/env", "-i", "HOME=/root", "USER=root", "LANG=C.UTF-8", "TERM=dumb")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class InContainer:
    """Starts agents as an orch on the controller would: one ssh, one pct exec."""

    label = "container 200"

    def __init__(self, lab):
        self.lab = lab

    async def start(self, argv):
        inner = shell_command(["pct", "exec", "200", "--", *CLEAN, PATH, *argv])
        outer = self.lab.command(["ssh", "-o", "BatchMode=yes", "root@10.1.2.6", inner])
        pipe = asyncio.subprocess.PIPE
        environment = self.lab.environment()
        return LocalProcess(
            await asyncio.create_subprocess_exec(
                *outer, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
            )
        )


async def start(session, run_id, source, **params):
    about = {"base": BASE, "run_id": run_id, "argv": ["python3", "-c", source], "cwd": "/root", **params}
    answer = (await session.request("start_run", **about, session="train", watch_s=0)).header
    assert answer["started"], answer
    return answer


async def judged(session, run_id):
    facts = (await session.request("run_facts", base=BASE, run_id=run_id, log_tail_bytes=100)).header
    return judge_run(facts), facts


async def test_a_session_in_the_container_and_a_stop(real_lab):
    session = await AgentSession.open(InContainer(real_lab))
    try:
        answer = await start(session, "in-tmux", GRACEFUL)
        assert answer["session"] == "train" and answer["session_note"] is None
        state, facts = await judged(session, None)
        assert state.phase is RunPhase.RUNNING and state.notes == () and facts["session"]["present"]
        while (await session.request("run_facts", base=BASE, log_tail_bytes=100)).body != b"ready\n":
            await asyncio.sleep(0.02)
        stopped = [r.header async for r in session.stream("stop_run", base=BASE, run_id=None, wait_s=20)][-1]
        assert stopped["stopped"] and stopped["exit"]["exit_code"] == 3, stopped
    finally:
        await session.close()


async def test_a_run_outlives_the_connection_and_not_the_container(real_lab):
    session = await AgentSession.open(InContainer(real_lab))
    answer = await start(session, "restarted", "import time; print('up', flush=True); time.sleep(600)")
    await session.close()
    session = await AgentSession.open(InContainer(real_lab))
    state, _ = await judged(session, "restarted")
    assert state.phase is RunPhase.RUNNING and state.pid == answer["pid"]
    await session.close()
    await asyncio.to_thread(real_lab.stop_container)
    await asyncio.to_thread(real_lab.start_container)
    session = await AgentSession.open(InContainer(real_lab))
    try:
        state, facts = await judged(session, "restarted")
        assert state.phase is RunPhase.ENDED_UNKNOWN and not facts["live"]["held"]
        assert "the container has been restarted since" in state.evidence
        assert facts["session"]["present"] is False
        await start(session, "after", "pass")
    finally:
        await session.close()
