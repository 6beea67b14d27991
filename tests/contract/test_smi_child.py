"""nvidia-smi as one long-lived child: it ends, hangs, is missing, and never leaves anything behind."""

import stat
import subprocess

import pytest

from orchestrator.agent.far import smi
from orchestrator.agent.far.smi import Repeated
from tests.waiting import eventually


@pytest.fixture
def repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(smi, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(smi, "SILENT_S", 0.5)
    monkeypatch.setattr(smi, "SILENT_ROUNDS", 0)
    made = []

    def make(script):
        program = tmp_path / "smi"
        program.write_text("#!/bin/sh\n" + f"echo $$ >>{tmp_path}/pids\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        made.append(Repeated([str(program)], 2, 1))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        assert not one._thread.is_alive()


def pids(folder):
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_one_child_tells_again_and_again(repeated, tmp_path):
    follower = repeated("n=0; while :; do n=$((n+1)); echo 0, $n; echo 1, $n; sleep 0.1; done\n")
    first = eventually(lambda: follower.word()["rows"], "a round")
    eventually(lambda: follower.word()["rows"] != first, "another one")
    assert len(follower.word()["rows"]) == 2 and follower.word()["error"] is None and follower.word()["age_s"] < 5
    follower.stop()
    assert len(pids(tmp_path)) == 1
    eventually(lambda: not alive(pids(tmp_path)[0]), "it ends with the follower")


def test_one_that_ends_is_started_again_and_its_words_are_told(repeated, tmp_path):
    follower = repeated("echo 0, 7; sleep 0.4; echo GPU is lost; exit 15\n")
    eventually(lambda: len(pids(tmp_path)) >= 2, "it is started again")
    eventually(lambda: follower.word()["error"] == "GPU is lost", "its words")
    assert follower.word()["rows"] == ["0, 7"], "what it said last stays"


def test_one_that_hangs_is_killed_and_its_last_word_gets_older(repeated, tmp_path):
    follower = repeated("echo 0, 7; exec sleep 600\n")
    eventually(lambda: follower.word()["rows"] == ["0, 7"], "a round")
    hung = pids(tmp_path)[0]
    eventually(lambda: "has not answered" in (follower.word()["error"] or ""), "it is said")
    eventually(lambda: not alive(hung), "it is killed")
    assert follower.word()["rows"] == ["0, 7"] and follower.word()["age_s"] > 0.5


def test_how_long_nothing_was_heard_is_counted_over_all_that_hung(repeated, tmp_path):
    follower = repeated("exec sleep 60\n")
    follower._began -= 100.0
    told = set()

    def third():
        told.add(follower.word()["error"])
        return len(pids(tmp_path)) > 2

    eventually(third, "two hung")
    assert {words[: len("nvidia-smi has not answered for 10")] for words in told} == {
        "nvidia-smi has not answered for 10"
    }


def test_one_that_is_not_there_starts_nothing(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: 1 / 0)
    follower = Repeated(["no-such-nvidia-smi"], 2, 1)
    follower.start()
    eventually(lambda: follower.word()["error"] == "no-such-nvidia-smi is not installed", "it is said")
    follower.stop()
