"""The agent's watch on real runs: the same facts as run_facts, told for less."""

import json
import subprocess

import pytest

from orchestrator.agent.far import live, observe, records
from orchestrator.agent.far import watch as watch_op
from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.errors import Cancelled, OpError
from orchestrator.agent.far.watch import Rarely, Watcher, difference
from tests.run_place import TRAINING, ready
from tests.waiting import eventually


def watcher(place, run_id=None, tail=1000, **more):
    return Watcher({"base": str(place.base), "run_id": run_id, "log_tail_bytes": tail, **more}, None)


def test_it_tells_what_run_facts_tells(place):
    watching = watcher(place)
    assert watching.look()["run"] is None
    place.start("raise SystemExit(3)", watch_s=20)
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    eventually(lambda: not place.facts()[0]["run"]["wrapper_alive"], "the wrapper is gone")
    told, facts = watching.look(), place.facts()[0]
    assert set(facts) <= set(told)
    for name in set(facts) - {"now", "booted_at", "disk_free_bytes", "run"}:
        assert told[name] == facts[name], name
    assert {**told["run"], "log": None} == {**facts["run"], "log": None}
    assert told["run"]["log"]["size"] == facts["run"]["log"]["size"]


def test_a_run_that_is_started_later_is_followed_and_a_wanted_one_is_kept(place):
    free = watcher(place)
    first = place.start("pass", watch_s=20)
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    kept = watcher(place, first["run_id"])
    assert free.look()["run"]["exit"]["exit_code"] == 0
    second = place.start(TRAINING)
    told = free.look()
    assert told["run"]["id"] == second["run_id"] and told["run"]["training_alive"]
    assert kept.look()["run"]["id"] == first["run_id"]
    assert told["failure"] is None and kept.look()["failure"] is None
    with pytest.raises(OpError, match="no run nothing"):
        watcher(place, "nothing").look()


def test_a_failed_run_is_told_with_its_log_from_the_failure_on(place):
    noise = "import sys, time; print('x' * 200000)\ntry: raise ValueError('why')\nexcept ValueError: "
    noise += "import traceback; traceback.print_exc(file=sys.stdout)\nprint('y' * 300000); sys.exit(1)"
    failed = place.start(noise, watch_s=20)
    eventually(lambda: not live.is_held(str(place.base)), "the lock is free")
    watching = watcher(place)
    assert watching.look()["failure"]["run_id"] == failed["run_id"]
    place.start(TRAINING)
    failure = watching.look()["failure"]
    assert (failure["run_id"], failure["exit"]["exit_code"]) == (failed["run_id"], 1)
    assert failure["log_tail"].lstrip("x\n").startswith("Traceback") and "ValueError: why" in failure["log_tail"]


def test_a_look_at_what_did_not_change_starts_nothing_and_reads_no_record(place, monkeypatch):
    answer = place.start(TRAINING)
    watching = watcher(place, cache_folders={"a": str(place.base)})
    ready(place, answer, b"training")
    (place.folder(answer) / "status.json").write_text('{"phase": "training", "step": 1}')
    before = watching.look()
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *words, **options: pytest.fail(f"started {words}"))
        patched.setattr(records, "read_record", lambda *words: pytest.fail(f"read {words}"))
        patched.setattr(observe, "strays", lambda run: pytest.fail("looked through /proc"))
        for _ in range(3):
            told = watching.look()
    changed = difference(before, told)
    assert changed == {"changed": {"now": told["now"]}}
    draft = place.folder(answer) / "draft"
    draft.write_text('{"phase": "training", "step": 2}')
    draft.rename(place.folder(answer) / "status.json")
    changed = difference(told, watching.look())
    assert changed["run"] == {"status": {"phase": "training", "step": 2}}


def test_a_killed_training_leaves_strays_that_are_told(place):
    child = "import time; print('child', flush=True); time.sleep(60)"
    source = "import os, subprocess, sys, time\n"
    source += f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
    source += "while not os.path.exists(os.environ['ORCH_RUN_DIR'] + '/go'): time.sleep(0.02)\n"
    answer = place.start(source + "os.kill(os.getpid(), 9)\n")
    watching = watcher(place)
    assert watching.look()["run"]["strays"] == []
    (place.folder(answer) / "go").touch()
    eventually(lambda: watching.look()["run"]["strays"], "the child is told")
    assert place.exit_of(answer)["signal"] == 9


@pytest.fixture
def log(tmp_path):
    return watch_op._Log(10), tmp_path / "run.log"


def test_only_what_was_added_to_the_log_travels(log):
    seen, path = log
    seen.follow(str(path))
    assert seen.grown() == ({"at": 0, "anew": True}, b"") and seen.facts() is None
    path.write_bytes(b"abc")
    seen.follow(str(path))
    assert seen.grown() == ({"at": 0, "anew": True}, b"abc"), "there was no file before"
    seen.follow(str(path))
    assert seen.grown() == ({"at": 3, "anew": False}, b"")
    path.write_bytes(b"abcdef")
    seen.follow(str(path))
    assert seen.grown() == ({"at": 3, "anew": False}, b"def") and seen.facts()["size"] == 6


def test_a_log_that_runs_away_is_cut_and_one_that_shrinks_begins_anew(log):
    seen, path = log
    path.write_bytes(b"x" * 100 + b"0123456789")
    seen.follow(str(path))
    assert seen.grown() == ({"at": 100, "anew": True}, b"0123456789")
    path.write_bytes(b"y" * 200 + b"0123456789")
    seen.follow(str(path))
    assert seen.grown() == ({"at": 200, "anew": True}, b"0123456789"), "what lies between was not told"
    path.write_bytes(b"short")
    seen.follow(str(path))
    assert seen.grown() == ({"at": 0, "anew": True}, b"short")
    seen.follow(None)
    assert seen.grown() == ({"at": 0, "anew": True}, b"")


def test_the_op_pushes_frames_until_it_is_cancelled(place):
    place.start(TRAINING)
    frames = []

    def emit(header, body):
        frames.append((json.loads(json.dumps(header["data"])), body))
        if len(frames) == 3:
            channel.cancel()

    channel = Channel(1, emit)
    with pytest.raises(Cancelled):
        watch_op.watch({"base": str(place.base), "interval_s": 0.05, "log_tail_bytes": 100, "gpu": None}, b"", channel)
    assert ["all" in frame for frame, _ in frames] == [True, False, False]
    assert all({"log", "changed"} <= set(frame) for frame, _ in frames[1:])


def test_what_is_done_rarely_is_done_when_due_or_when_its_matter_changes():
    now, calls = [0.0], []
    rarely = Rarely(10.0, lambda word: calls.append(word) or len(calls), lambda: now[0])
    assert [rarely.ask("a", "x"), rarely.ask("a", "y")] == [1, 1]
    assert rarely.ask("b", "z") == 2
    now[0] = 10.0
    assert rarely.ask("b", "w") == 3 and calls == ["x", "z", "w"]
