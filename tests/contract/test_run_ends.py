"""Stopping, watching and losing runs: killed wrappers, processes that ignore signals, children left behind."""

import json
import os
import signal

import pytest

from orchestrator.agent.far import observe, process, records, stop
from orchestrator.agent.far.errors import OpError
from tests.run_place import GRACEFUL, STUBBORN, TRAINING, ready
from tests.waiting import eventually


def test_a_killed_wrapper_does_not_free_the_target(place):
    answer = place.start(TRAINING)
    os.kill(place.wrapper_pid(answer), signal.SIGKILL)
    eventually(lambda: not place.facts()[0]["run"]["wrapper_alive"], "the wrapper's end")
    facts = place.facts()[0]
    assert facts["live"]["held"] and facts["run"]["training_alive"] and facts["run"]["exit"] is None
    assert place.start(TRAINING)["reason"] == "busy"
    os.kill(answer["pid"], signal.SIGKILL)
    eventually(lambda: not place.facts()[0]["live"]["held"], "the lock is free")
    facts = place.facts()[0]
    assert not facts["run"]["training_alive"] and facts["run"]["exit"] is None
    waited = place.call(observe.wait_run, run_id=answer["run_id"], wait_s=5)
    assert (waited["met"], waited["reason"]) == (False, "ended_unknown")


def test_a_run_whose_wrapper_is_gone_can_be_stopped(place):
    answer = place.start(TRAINING)
    os.kill(place.wrapper_pid(answer), signal.SIGKILL)
    eventually(lambda: not place.facts()[0]["run"]["wrapper_alive"], "the wrapper's end")
    stopped = place.call(stop.stop_run, run_id=None, wait_s=20)
    assert stopped["stopped"] and stopped["run_id"] == answer["run_id"] and stopped["exit"] is None


def test_hup_does_not_reach_the_training_and_term_does(place):
    answer = place.start(TRAINING)
    os.kill(place.wrapper_pid(answer), signal.SIGHUP)
    os.kill(place.wrapper_pid(answer), signal.SIGTSTP)
    assert place.facts()[0]["run"]["training_alive"]
    os.kill(place.wrapper_pid(answer), signal.SIGTERM)
    assert place.exit_of(answer)["signal"] == signal.SIGTERM


def test_stop_asks_first(place):
    answer = place.start(GRACEFUL)
    ready(place, answer)
    stopped = place.call(stop.stop_run, run_id=answer["run_id"], wait_s=20)
    assert stopped["stopped"] and stopped["exit"]["exit_code"] == 3 and stopped["killed"] == []
    assert place.events[0] == {"phase": "asked", "pid": answer["pid"]}
    assert place.log(answer).endswith(b"saved\n")
    again = place.call(stop.stop_run, run_id=answer["run_id"], wait_s=1)
    assert (again["stopped"], again["was"]) == (True, "ended")


def test_stop_without_kill_says_what_still_runs_and_kill_ends_all_of_it(place):
    answer = place.start(STUBBORN)
    ready(place, answer)
    ready(place, answer, b"child")
    stopped = place.call(stop.stop_run, run_id=None, wait_s=0.2)
    assert not stopped["stopped"] and len(stopped["still"]) == 2
    assert place.facts()[0]["run"]["training_alive"] and len(place.facts()[0]["run"]["strays"]) == 1
    stopped = place.call(stop.stop_run, run_id=None, wait_s=0.2, kill=True)
    assert stopped["stopped"] and len(stopped["killed"]) == 2 and stopped["still"] == []
    assert stopped["exit"]["signal"] == signal.SIGKILL
    assert records.processes_of_run(str(place.folder(answer))) == []


@pytest.mark.parametrize("whose", ["the training's", "its wrapper's"])
def test_a_stopped_process_is_told_and_woken_for_the_end(place, whose):
    answer = place.start(GRACEFUL)
    ready(place, answer)
    pid = answer["pid"] if whose == "the training's" else place.wrapper_pid(answer)
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: process.read_stat(pid).stopped, "it is stopped")
    assert place.facts()[0]["run"]["stopped"] == ([pid] if whose == "the training's" else [])
    stopped = place.call(stop.stop_run, run_id=None, wait_s=20)
    assert stopped["stopped"] and stopped["killed"] == [] and stopped["exit"]["exit_code"] == 3


def test_strays_of_an_ended_run_are_seen_and_stopped(place):
    source = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True)"
    answer = place.start(source, watch_s=20)
    assert answer["ended"]["exit_code"] == 0
    assert [stray["argv"] for stray in place.facts()[0]["run"]["strays"]] == [["sleep", "60"]]
    stopped = place.call(stop.stop_run, run_id=answer["run_id"], wait_s=20)
    assert stopped["stopped"] and place.facts()[0]["run"]["strays"] == []


def test_a_worker_that_is_stopped_is_told(place):
    answer = place.start("import subprocess; subprocess.Popen(['sleep', '60']).wait()")
    eventually(lambda: place.facts()[0]["run"]["strays"], "the worker lives")
    (worker,) = place.facts()[0]["run"]["strays"]
    os.kill(worker["pid"], signal.SIGSTOP)
    eventually(lambda: place.facts()[0]["run"]["stopped"] == [worker["pid"]], "it is stopped")
    assert place.call(stop.stop_run, run_id=answer["run_id"], wait_s=20)["stopped"]


def test_nothing_to_stop(place):
    place.base.mkdir()
    assert place.call(stop.stop_run, run_id=None, wait_s=1)["was"] == "none"


STEPS = """
import json, os, time
folder = os.environ["ORCH_RUN_DIR"]
os.makedirs(folder + "/checkpoints/step-2"); open(folder + "/checkpoints/step-2/_SUCCESS", "w").close()
os.makedirs(folder + "/checkpoints/step-10")
for step in range(4):
    with open(folder + "/status.tmp", "w") as stream: json.dump({"phase": "training", "step": step}, stream)
    os.rename(folder + "/status.tmp", folder + "/status.json")
    time.sleep(0.15)
"""


def test_waiting_for_a_step_and_for_the_end(place):
    answer = place.start(STEPS)
    waited = place.call(observe.wait_run, run_id=answer["run_id"], condition={"kind": "first-step"}, wait_s=20)
    assert waited["met"] and waited["status"]["step"] >= 1
    waited = place.call(observe.wait_run, run_id=answer["run_id"], condition={"kind": "step", "step": 99}, wait_s=20)
    assert (waited["met"], waited["reason"], waited["exit"]["exit_code"]) == (False, "ended", 0)
    waited = place.call(observe.wait_run, run_id=answer["run_id"], condition={"kind": "end"}, wait_s=20)
    assert waited["met"] and any((event["status"] or {}).get("step") == 3 for event in place.events)
    found = place.facts()[0]["run"]["checkpoints"]
    assert found == [{"name": "step-2", "complete": True}, {"name": "step-10", "complete": False}]


def test_waiting_has_an_end(place):
    answer = place.start(TRAINING)
    waited = place.call(observe.wait_run, run_id=answer["run_id"], condition={"kind": "end"}, wait_s=0.2)
    assert (waited["met"], waited["reason"]) == (False, "timeout")


def test_facts_of_nothing_and_of_broken_records(place):
    facts, tail = place.facts()
    assert facts["run"] is None and facts["runs"] == [] and not facts["live"]["held"] and tail == b""
    answer = place.start("pass", watch_s=20)
    (place.folder(answer) / "status.json").write_text('{"phase": ')
    assert place.facts()[0]["run"]["status"] == {"broken": str(place.folder(answer) / "status.json")}
    with pytest.raises(OpError) as caught:
        place.facts("not-there")
    assert caught.value.kind == "missing"


def test_values_of_variables_stay_there(place):
    answer = place.start("pass", environment={"TOKEN": "canary-4711"}, watch_s=20)
    facts, _ = place.facts(answer["run_id"])
    assert "TOKEN" in facts["run"]["spec"]["environment"] and "canary" not in json.dumps(facts)
