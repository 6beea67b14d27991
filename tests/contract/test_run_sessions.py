"""Runs in real tmux on a private socket: the session is a window, and losing it loses nothing."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.far import session, stop
from tests.run_place import GRACEFUL, TRAINING, Place, ready
from tests.waiting import eventually

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


def tmux(place, *words):
    argv = ["tmux", "-S", session.socket_path(str(place.base)), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@needs_tmux
def test_a_session_shows_the_log_and_stays(place):
    answer = place.start("print('seen in the pane')", session="train.1", watch_s=20)
    assert answer["session"] == "train_1" and answer["session_note"] is None
    assert answer["attach"][-2:] == ["-t", "=train_1"]
    eventually(lambda: "ended with exit code 0" in session.capture(str(place.base), "train_1"), "the last line")
    assert "seen in the pane" in session.capture(str(place.base), "train_1")
    assert tmux(place, "display-message", "-p", "-t", "=train_1:", "#{window_width} #{history_limit}").stdout == (
        "250 50000\n"
    )
    dead = ("list-panes", "-s", "-t", "=train_1:", "-F", "#{pane_dead}")
    eventually(lambda: tmux(place, *dead).stdout == "1\n", "the pane stays, dead")
    facts = place.facts()[0]
    assert facts["session"]["present"] and facts["session"]["attached"] == 0
    again = place.start("print('once more')", session="train.1", watch_s=20)
    assert again["session"] == "train_1", "the session of the ended run was replaced"
    assert tmux(place, "list-sessions", "-F", "#{session_name}").stdout == "train_1\n"


@needs_tmux
def test_the_server_outlives_the_session_that_is_replaced(place):
    """One that ends with its last session may answer the next start's first words and then be gone."""
    servers = set()
    for _ in range(2):
        answer = place.start("pass", session="train", watch_s=20)
        assert answer["session"] == "train", answer["session_note"]
        servers.add(tmux(place, "display-message", "-p", "#{pid}").stdout)
    assert len(servers) == 1


@needs_tmux
def test_a_session_in_which_somebody_works_is_kept_under_another_name(place):
    place.start("pass", session="train", watch_s=20)
    tmux(place, "new-window", "-t", "=train:", "sleep 60")
    place.start("pass", session="train", watch_s=20)
    assert tmux(place, "list-sessions", "-F", "#{session_name}").stdout == "train\ntrain-old1\n"


@needs_tmux
def test_the_end_of_the_tmux_server_does_not_touch_the_training(place):
    answer = place.start(GRACEFUL, session="train")
    ready(place, answer)
    assert tmux(place, "kill-server").returncode == 0
    eventually(lambda: place.facts()[0]["session"]["present"] is False, "the session is gone")
    assert place.facts()[0]["run"]["training_alive"] and place.facts()[0]["run"]["wrapper_alive"]
    assert place.call(stop.stop_run, run_id=None, wait_s=20)["exit"]["exit_code"] == 3


@needs_tmux
def test_ctrl_c_in_the_pane_reaches_the_training(place):
    answer = place.start(GRACEFUL, session="train")
    ready(place, answer)
    tmux(place, "send-keys", "-t", "=train:", "C-c")
    assert place.exit_of(answer)["exit_code"] == 3


@needs_tmux
def test_a_busy_session_name_is_left_alone(place):
    first = place.start(TRAINING, session="train")
    assert place.start(TRAINING, session="train")["reason"] == "busy"
    assert place.facts()[0]["run"]["id"] == first["run_id"] and place.facts()[0]["session"]["present"]
    assert tmux(place, "list-sessions", "-F", "#{session_name} #{session_windows}").stdout == "train 1\n"


def test_without_tmux_it_runs_and_says_so(place, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    answer = place.start("print(1)", session="train")
    assert answer["started"] and answer["session"] is None and "tmux is not installed" in answer["session_note"]
    assert place.exit_of(answer)["exit_code"] == 0


@needs_tmux
def test_a_stale_socket_is_no_session(place):
    place.start("pass", session="train", watch_s=20)
    socket = session.socket_path(str(place.base))
    pid = int(tmux(place, "display-message", "-p", "#{pid}").stdout)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: session.look(str(place.base), "train").present is False, "no session")
    assert os.path.exists(socket)
    assert place.start("pass", session="train", watch_s=20)["session"] == "train"


@needs_tmux
def test_a_path_too_long_for_a_socket(tmp_path):
    place = Place(tmp_path / ("x" * 60) / ("y" * 60))
    try:
        answer = place.start("print('long')", session="train", watch_s=20)
        assert answer["session"] == "train", answer
        socket = Path(session.socket_path(str(place.base)))
        assert socket.parent.stat().st_mode & 0o777 == 0o700 and str(socket) in answer["attach"]
    finally:
        place.clean()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(Path(session.socket_path(str(place.base))).parent)
