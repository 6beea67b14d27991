"""What run_facts mean: every way in which a run can be, and how we would know."""

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.records import parse_run_record
from orchestrator.probes.training import (
    CompileProgress,
    RunPhase,
    compile_progress,
    judge_run,
    parse_status,
    signal_name,
)

WHO = {"boot_id": "b", "init_start_ticks": 7, "pid": 10, "start_ticks": 5}
EXIT = {"exit_code": 0, "signal": None, "start_error": None, "started_at": 1.0, "ended_at": 2.0, "oom_kills": 0}


def facts(*, live=None, **run):
    about = {
        "id": "r1",
        "folder": "/orch/runs/r1",
        "spec": {"created_at": 100.0, "argv": ["python", "train.py"], "session": "train"},
        "wrapper": {"oom_kills": 1},
        "exit": None,
        "wrapper_alive": False,
        "training_alive": False,
        "training_pid": 10,
        "same_boot": True,
        "recorded": WHO,
        "claimed": True,
        "oom_kills": 1,
        "strays": [],
        "log": {"size": 5, "mtime": 900.0},
        "checkpoints": [{"name": "step-10", "complete": True}, {"name": "step-20", "complete": False}],
    }
    about.update(run)
    held = live or {"held": False, "content": {"run_id": "r1"}}
    return {
        "now": 1000.0,
        "booted_at": 50.0,
        "live": held,
        "run": about,
        "session": {"wanted": "t"},
    }


HELD = {"held": True, "content": {"run_id": "r1"}}


def test_stopped_processes_of_a_live_run():
    state = judge_run(facts(live=HELD, training_alive=True, wrapper_alive=True, stopped=[12, None]))
    assert state.stopped_pids == (12,) and state.notes == ("pid 12 is stopped (state T, by SIGSTOP or Ctrl-Z)",)
    assert judge_run(facts(exit=EXIT, stopped=[12])).stopped_pids == ()


def test_none():
    assert judge_run({"run": None}).phase is RunPhase.NONE
    assert parse_run_record({"run": None}) is None


def test_running():
    state = judge_run(facts(live=HELD, wrapper_alive=True, training_alive=True))
    assert state.phase is RunPhase.RUNNING and state.notes == () and state.pid == 10


def test_running_without_its_wrapper_has_a_note():
    state = judge_run(facts(live=HELD, training_alive=True))
    assert state.phase is RunPhase.RUNNING and "wrapper is gone" in state.notes[0]


def test_starting():
    wrapper_only = {"wrapper": None, "recorded": WHO, "wrapper_alive": True, "training_pid": None}
    assert judge_run(facts(live=HELD, **wrapper_only)).phase is RunPhase.STARTING
    young = {"spec": {"created_at": 999.0}, "wrapper": None, "recorded": None}
    for claimed in (False, True):
        assert judge_run(facts(claimed=claimed, **young)).phase is RunPhase.STARTING


def test_never_started():
    state = judge_run(facts(wrapper=None, recorded=None, claimed=False))
    assert state.phase is RunPhase.NOT_STARTED
    error = {"start_error": {"error": "ENOENT", "message": "there is no program x"}}
    state = judge_run(facts(exit=dict(EXIT, exit_code=None, **error)))
    assert state.phase is RunPhase.NOT_STARTED and state.evidence == ("there is no program x",)


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_code": None, "signal": 9}, "killed by SIGKILL"),
        ({"exit_code": None, "signal": 99}, "killed by signal 99"),
        ({"exit_code": 137}, "exit code 137, SIGKILL"),
    ],
)
def test_ended(ending, sentence):
    state = judge_run(facts(exit=dict(EXIT, **ending)))
    assert state.phase is RunPhase.ENDED and state.evidence == (sentence,)


def test_signals_are_called_what_linux_calls_them():
    for number in range(1, 32):
        assert signal_name(number) in (signal.Signals(number).name, "SIGSTKFLT")
    assert signal_name(0) == "signal 0" and signal_name(34) == "signal 34"


def test_ended_for_want_of_memory():
    state = judge_run(facts(exit=dict(EXIT, exit_code=None, signal=9, oom_kills=1)))
    assert "want of memory" in state.evidence[1]


def test_strays_are_noted():
    state = judge_run(facts(exit=EXIT, strays=[{"pid": 77}, {"pid": 78}]))
    assert state.notes == ("2 processes of the run still live: 77, 78",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"same_boot": False, "spec": {"created_at": 49.0}}, "the machine has been restarted since"),
        ({"same_boot": False, "spec": {"created_at": 51.0}}, "the container has been restarted since"),
        ({"same_boot": False, "spec": None}, "the container, or its machine, has been restarted since"),
        ({"oom_kills": 3}, "2 processes of its cgroup were killed for want of memory since it began"),
    ],
)
def test_outcome_unknown_with_evidence(change, sentence):
    state = judge_run(facts(**change))
    assert state.phase is RunPhase.ENDED_UNKNOWN and state.exit is None
    assert sentence in state.evidence and "its log was last written 100 s ago" in state.evidence


def test_another_runs_lock_is_not_ours():
    assert judge_run(facts(live={"held": True, "content": {"run_id": "r2"}})).phase is RunPhase.ENDED_UNKNOWN


def test_a_broken_exit_record_is_not_an_end_we_know():
    state = judge_run(facts(exit={"broken": "/orch/runs/r1/exit.json"}))
    assert state.phase is RunPhase.ENDED_UNKNOWN and "exit.json, cannot be read" in state.evidence[0]


def test_status_takes_nothing_for_what_it_is_not():
    status = parse_status({"phase": "training\x1b[2J", "step": "5", "loss": True, "tokens_per_s": 20, "eta_s": None})
    assert (status.phase, status.step, status.loss, status.tokens_per_s) == ("training", None, None, 20.0)
    assert parse_status({"broken": "x"}) is None and parse_status(None) is None and parse_status([1]) is None


def test_the_record():
    record = parse_run_record(facts(exit=EXIT, status={"phase": "done", "step": 5}, result={"broken": "/x"}))
    assert record.run_id == "r1" and record.argv == ("python", "train.py") and record.state.phase is RunPhase.ENDED
    assert record.last_checkpoint.step == 10 and record.checkpoints[1].complete is False
    assert record.result is None and record.broken == ("/x",) and record.session.name == "t"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted(facts()["run"])


@given(st.dictionaries(st.sampled_from([*NAMES, "status", "result", "runtime"]), json_values), json_values)
def test_any_facts_are_survived(run, live):
    told = facts(**run)
    told["live"] = live
    json.dumps(told)
    judge_run(told)
    parse_run_record(told)


def test_compiling_is_counted_and_timed():
    said = {"phase": "compiling", "phase_started_at": 100.0, "compile_done": 2, "compile_total": 8}
    assert compile_progress(parse_status(said), 350.0) == CompileProgress(3, 8, 250.0)
    assert compile_progress(parse_status({**said, "compile_done": 8}), 350.0) == CompileProgress(8, 8, 250.0)
    assert compile_progress(parse_status({"phase": "compiling", "detail": "graph 3 of 8"}), None) == CompileProgress(
        3, 8, None
    )
    assert compile_progress(parse_status({"phase": "compiling"}), 1.0) == CompileProgress(None, None, None)
    assert compile_progress(parse_status({**said, "phase": "training"}), 350.0) is None, "it is over"
    assert compile_progress(parse_status({**said, "compile_done": "2"}), 350.0) == CompileProgress(None, None, 250.0)
