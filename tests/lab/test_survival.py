"""A run survives whatever is not the container itself, and status tells the truth afterwards.

Rule: whether the training lives is seen past orch, from the lab's host: the same process, and its log grows.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.past_orch import Training, agents, far, kill
from tests.lab.place import Place, said
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
numbers = itertools.count(1)
LINK_DOWN_S = 60.0


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"s{next(numbers)}")
    place.write(command=["python3", "foreign.py", "100000", "0.02"], session="window")
    place.ok("deploy")
    yield place
    place.clean()


def launched(place: Place) -> Training:
    place.ok("launch")
    return eventually(lambda: Training.of(place), "the training is recorded")


def waiting(place: Place) -> tuple[Training, subprocess.Popen[bytes]]:
    """A run that its launcher waits for."""
    with (place.folder / "said").open("wb") as text:
        client = place.popen("launch", "--wait", "end", stdout=text, stderr=text)
    eventually(lambda: b"started" in (place.folder / "said").read_bytes(), "it is started")
    return eventually(lambda: Training.of(place), "the training is recorded"), client


def assert_it_goes_on(
    place: Place, training: Training, *, session: str = "window: orch attach", note: str = ""
) -> None:
    """The training, what status says of it, its log, and that nothing else can be started beside it."""
    assert training.lives(place)
    size = training.log_size(place)
    eventually(lambda: training.log_size(place) > size, "the log does not grow")
    text = place.ok("status")
    assert f"{training.run_id} running for " in text and f"(pid {training.pid})" in text
    assert f" session {session} " in " ".join(text.split())
    assert ("note: " in text) == bool(note) and note in text
    state = place.status()["run"]["state"]
    assert (state["phase"], state["pid"], state["exit"]) == ("running", training.pid, None)
    assert state["notes"] == ([note] if note else [])
    assert place.ok("logs", "-n", "1").startswith("step ")
    refused = place.orch("launch")
    assert refused.returncode == 9, said(refused)
    assert training.run_id in said(refused) and "nothing was started" in said(refused)
    assert training.lives(place)


@pytest.mark.parametrize("words", [["launch"], ["launch", "--wait", "end"]], ids=["at-once", "waiting"])
def test_the_client_is_killed(place: Place, words: list[str]) -> None:
    client = place.popen(*words)
    # The first one is still looking whether the training ends at once.
    training = eventually(lambda: Training.of(place), "the training is recorded")
    client.send_signal(signal.SIGKILL)
    assert client.wait() == -signal.SIGKILL
    assert_it_goes_on(place, training)
    eventually(lambda: agents(place) == [], "its agent is gone")
    assert "was stopped" in place.ok("stop") + place.ok("status")


def test_the_agent_is_killed(place: Place) -> None:
    training, client = waiting(place)
    (agent,) = agents(place)
    kill(place, agent)
    assert client.wait(20) == 8, (place.folder / "said").read_text()
    assert_it_goes_on(place, training)


def test_sshd_is_restarted_and_then_its_sessions_are_killed(place: Place, real_lab: RealLab) -> None:
    training, client = waiting(place)
    real_lab.restart_sshd()
    assert_it_goes_on(place, training)
    assert client.poll() is None
    script = 'for p in $(cat /sys/fs/cgroup/host/cgroup.procs); do [ "$(cat /proc/$p/comm)" != sshd ] || echo $p; done'
    listener = real_lab.host_run(["cat", "/run/sshd.pid"]).stdout.decode().strip()
    sessions = set(real_lab.host_run(["sh", "-c", script]).stdout.decode().split()) - {listener}
    assert sessions
    real_lab.host_run(["kill", "-9", *sessions])
    assert client.wait(20) == 8, (place.folder / "said").read_text()
    assert_it_goes_on(place, training)


def test_the_link_is_down_for_a_minute(place: Place, real_lab: RealLab) -> None:
    training, client = waiting(place)
    began = time.monotonic()
    real_lab.link_down()
    try:
        assert client.wait(60) == 8
        text = (place.folder / "said").read_text()
        # The agent noticed the silence by itself.
        eventually(lambda: agents(place) == [], "the agent ends", timeout_s=30)
        unreachable = place.orch("status")
        assert unreachable.returncode == 4, said(unreachable)
        eventually(lambda: time.monotonic() - began > LINK_DOWN_S, "a minute passes", timeout_s=LINK_DOWN_S + 5)
        assert training.lives(place)
    finally:
        real_lab.link_up()
    assert training.run_id in text and "may or may not have been done" in text
    eventually(lambda: place.orch("status").returncode == 0, "the host stays unreachable", timeout_s=60)
    assert_it_goes_on(place, training)


def test_the_tmux_server_is_killed(place: Place) -> None:
    training = launched(place)
    far(place, "tmux", "-S", f"{place.base}/tmux.sock", "kill-server")
    assert_it_goes_on(place, training, session="window: closed")
    assert "was stopped (killed by SIGTERM)" in place.ok("stop") + place.ok("status")


def test_the_wrapper_is_killed(place: Place) -> None:
    training = launched(place)
    kill(place, training.wrapper_pid)
    assert_it_goes_on(
        place, training, note="its wrapper is gone: the training goes on, its exit code will not be known"
    )
    # Nobody is left to record the end: that is what status says of it, and the next run may start.
    kill(place, training.pid)
    eventually(lambda: not training.lives(place), "it ends")
    text = place.ok("status")
    assert f"{training.run_id} ended, outcome unknown: nobody recorded how it ended; its wrapper is gone too" in text
    state = place.status()["run"]["state"]
    assert (state["phase"], state["exit"]) == ("ended, outcome unknown", None)
    assert place.ok("logs", "-n", "1").startswith("step ")
    assert_the_next_one_starts(place, training)


def test_the_container_is_stopped_and_started(place: Place, real_lab: RealLab) -> None:
    training = launched(place)
    real_lab.stop_container()
    try:
        stopped = place.orch("launch")
        assert stopped.returncode == 7 and "pct start 200" in said(stopped)
    finally:
        real_lab.start_container()
    assert not training.lives(place)
    text = place.ok("status")
    ended = f"{training.run_id} ended, outcome unknown: nobody recorded how it ended; the container has been restarted"
    assert ended in text and "window: closed" in text
    state = place.status()["run"]["state"]
    assert (state["phase"], state["exit"]) == ("ended, outcome unknown", None)
    assert place.ok("logs", "-n", "1").startswith("step ")
    assert_the_next_one_starts(place, training)


def assert_the_next_one_starts(place: Place, before: Training) -> None:
    after = launched(place)
    assert after.run_id != before.run_id and after.lives(place)
    assert_it_goes_on(place, after)
    assert place.ok("logs", before.run_id, "-n", "1").startswith("step ")
