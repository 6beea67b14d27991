"""Ending named processes and finding what runs left behind, on real processes of this machine."""

import os
import signal
import subprocess
import sys

import pytest

from orchestrator.agent.far import gpu_holders, identity, kill, leftovers, membership, process
from orchestrator.agent.far.errors import OpError
from tests.run_place import STUBBORN, TRAINING, ready
from tests.waiting import eventually

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


@pytest.fixture
def inside(monkeypatch):
    """Every process of this machine counts as one of container 200; `inside[pid]` says otherwise."""
    told = {}
    seen = lambda pid: told.get(pid, membership.Membership(200, [pid, 7]))  # noqa: E731
    monkeypatch.setattr(kill.membership, "membership", seen)
    return told


@pytest.fixture
def children():
    started = []

    def start(*argv):
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate()


def told(child, **changes):
    found = {"pid": child.pid, "start_ticks": identity.start_ticks(child.pid), "ns_pids": [child.pid, 7]}
    return {**found, **changes}


def end(place, *chosen, container=200, boot_id=None):
    answer = place.call(
        kill.kill_processes,
        container=container,
        boot_id=boot_id or identity.boot_id(),
        init_start_ticks=identity.start_ticks(1),
        processes=list(chosen),
        wait_s=0.3,
        kill_wait_s=10,
    )
    return [row["outcome"] for row in answer["processes"]]


def test_term_first_then_kill_for_those_that_do_not_hear_it(place, inside, children):
    hears, deaf = children("sleep", "60"), children(sys.executable, "-c", DEAF)
    assert deaf.stdout.readline() == b"deaf\n"
    assert end(place, told(hears), told(deaf)) == ["ended", "killed"]
    assert (hears.wait(5), deaf.wait(5)) == (-signal.SIGTERM, -signal.SIGKILL)
    assert place.events == [
        {"phase": "asked", "pids": [hears.pid, deaf.pid]},
        {"phase": "killing", "pids": [deaf.pid]},
    ]


def test_what_is_not_the_same_any_more_is_never_signalled(place, inside, children):
    child = children("sleep", "60")
    same = told(child)
    assert end(place, dict(same, start_ticks=same["start_ticks"] - 1)) == ["gone"]
    assert end(place, dict(same, ns_pids=[child.pid, 8])) == ["gone"]
    assert end(place, same, container=201) == ["gone"]
    assert end(place, same, boot_id="another") == ["gone"]
    for other in (membership.Membership(None, [child.pid, 7]), membership.Membership(200, [child.pid])):
        inside[child.pid] = other
        assert end(place, same) == ["gone"]
    with pytest.raises(OpError):
        end(place, same, container=None)
    assert child.poll() is None and place.events == []


def test_what_leaves_the_container_after_term_is_not_killed(place, inside, children, monkeypatch):
    deaf = children(sys.executable, "-c", DEAF)
    assert deaf.stdout.readline() == b"deaf\n"
    chosen = told(deaf)
    send = process.send_signal

    def then_it_moves(identity, number, check):
        sent = send(identity, number, check)
        inside[deaf.pid] = membership.Membership(201, [deaf.pid, 7])
        return sent

    monkeypatch.setattr(kill.process, "send_signal", then_it_moves)
    assert end(place, chosen) == ["left"]
    assert deaf.poll() is None


def test_a_holder_of_a_gpu_is_described(place, children):
    child = children("sleep", "60")
    answer = place.call(gpu_holders.gpu_holders, pids=[child.pid])
    (row,) = [row for row in answer["processes"] if row["pid"] == child.pid]
    assert row["argv"] == ["sleep", "60"] and row["start_ticks"] == identity.start_ticks(child.pid)
    assert row["container"] is None and row["ns_pids"][0] == child.pid and answer["boot_id"] == identity.boot_id()


def test_leftovers_are_what_runs_of_this_base_started(place, children, tmp_path):
    live = place.start(TRAINING)
    dead = place.base / "runs" / "20261129-100000-dead"
    spelled = tmp_path / "spelled"
    spelled.symlink_to(place.base)
    mine = children("env", f"ORCH_RUN_DIR={spelled}/runs/20261129-100000-dead", "sleep", "60")
    children("env", f"ORCH_RUN_DIR={tmp_path}/runs/20261129-100000-dead", "sleep", "60")
    found = {}

    def all_there():
        answer = place.call(leftovers.run_leftovers)
        found.update({row["run_id"]: row["processes"] for row in answer["runs"]}, live=answer["live_run"])
        return found["live"] and len(found) == 3

    eventually(all_there, "both runs are seen")
    assert found["live"] == live["run_id"] and not dead.exists()
    assert [row["pid"] for row in found["20261129-100000-dead"]] == [mine.pid]
    assert {live["pid"], place.wrapper_pid(live)} <= {row["pid"] for row in found[live["run_id"]]}


def test_nothing_is_left_over_once_a_run_has_ended(place):
    answer = place.start(STUBBORN)
    ready(place, answer)
    assert place.call(leftovers.run_leftovers)["runs"]
    place.clean()
    assert place.call(leftovers.run_leftovers) == {
        "live": place.facts()[0]["live"],
        "live_run": None,
        "runs": [],
    }
    assert os.path.exists(place.folder(answer))
