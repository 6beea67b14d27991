"""A whole run through a real agent, under every interpreter that can be found: start, watch, facts, stop."""

import pytest

from orchestrator.agent.client import AgentSession
from tests.local_agent import LocalStarter, interpreters
from tests.run_place import GRACEFUL, Place


@pytest.mark.parametrize("python", interpreters())
async def test_a_run_under_each_interpreter(python, tmp_path):
    place = Place(tmp_path / "orch")
    base = str(place.base)
    script = tmp_path / "train.py"
    script.write_text(GRACEFUL)
    session = await AgentSession.open(LocalStarter(), pythons=[python])
    try:
        about = {"base": base, "run_id": "r1", "argv": ["python", str(script)], "cwd": str(tmp_path)}
        started = await session.request("start_run", **about, session="train", environment={"X": "ż"}, watch_s=0)
        assert started.header["started"], started.header
        facts = await session.request("run_facts", base=base, run_id=None, log_tail_bytes=1000)
        assert facts.header["live"]["held"] and facts.header["run"]["training_alive"]
        waited = [
            reply.header
            async for reply in session.stream("wait_run", base=base, run_id="r1", condition={"kind": "end"}, wait_s=0.3)
        ]
        assert waited[-1]["reason"] == "timeout"
        stopped = [reply.header async for reply in session.stream("stop_run", base=base, run_id="r1", wait_s=20)]
        assert stopped[0]["phase"] == "asked" and stopped[-1]["stopped"]
        assert stopped[-1]["exit"]["exit_code"] == 3
        fit = await session.request("preflight", base=base, python=python, tmux_wanted=True, paths=["/", "/no/such"])
        assert fit.header["python"]["version"] == session.hello.python_version
    finally:
        await session.close()
        place.clean()


async def test_the_run_outlives_its_agent(tmp_path):
    place = Place(tmp_path / "orch")
    script = tmp_path / "train.py"
    script.write_text(GRACEFUL)
    starter = LocalStarter()
    session = await AgentSession.open(starter)
    about = {"base": str(place.base), "run_id": "r1", "argv": ["python", str(script)], "cwd": str(tmp_path)}
    await session.request("start_run", **about, session=None, watch_s=0)
    await session.close()
    try:
        facts, _ = place.facts()
        assert facts["run"]["training_alive"] and facts["run"]["wrapper_alive"]
    finally:
        place.clean()
