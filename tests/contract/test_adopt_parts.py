"""What orch adopt finds out from outside: which process is the training, its interpreter, its log, its code."""

import json
import os
import subprocess
import sys

import pytest

from orchestrator.agent.far import adopt, foreign_code
from orchestrator.agent.far.adopt import Pane
from orchestrator.agent.far.errors import OpError
from tests.waiting import eventually

WORK = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture
def shell():
    """A pane's shell that runs what it is told, until its stdin ends."""
    started = []

    def start(script, *words):
        started.append(
            subprocess.Popen(["sh", "-c", script, "sh", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        return started[-1]

    yield start
    for one in started:
        one.communicate(timeout=20)


def test_the_training_is_the_python_below_the_shell_and_no_tool(shell):
    pane = shell('"$1" -c "$2" | cat', sys.executable, WORK)
    assert pane.stdout.readline() == b"up\n"
    other = shell("sleep 0.01; exec cat")
    found, stat, others = adopt.find_training([Pane("%1", other.pid, False), Pane("%0", pane.pid, False)], "x")
    assert found.id == "%0" and adopt.process.command_line(stat.pid)[-1] == WORK and not others
    with pytest.raises(OpError) as refused:
        adopt.find_training([Pane("%1", other.pid, False)], "x")
    assert refused.value.kind == "missing" and str(other.pid) in refused.value.evidence


def test_what_only_started_the_training_is_none(shell):
    pane = shell('timeout 60 "$1" -c "$2" <&0 | cat', sys.executable, WORK)
    assert pane.stdout.readline() == b"up\n"
    _, stat, others = adopt.find_training([Pane("%0", pane.pid, False)], "x")
    assert adopt.process.command_line(stat.pid) == [sys.executable, "-c", WORK] and not others


def test_of_two_trainings_none_is_taken_until_it_is_said_which(shell):
    panes = []
    for name in ("%0", "%1"):
        pane = shell('"$1" -c "$2" "$3" | cat', sys.executable, WORK, name)
        assert pane.stdout.readline() == b"up\n"
        panes.append(Pane(name, pane.pid, False))
    with pytest.raises(OpError) as refused:
        adopt.find_training(panes, "x")
    told = refused.value.evidence.splitlines()
    assert (refused.value.kind, len(told)) == ("several", 2) and "2 processes in session x" in str(refused.value)
    for pane in panes:
        line = told.pop(0)
        pid = int(line.split()[0])
        assert adopt.process.command_line(pid)[-1] == pane.id and line.endswith("s of CPU)")
        found, stat, others = adopt.find_training(panes, "x", pid)
        assert (found, stat.pid, others) == (pane, pid, [])
    with pytest.raises(OpError) as refused:
        adopt.find_training(panes[:1], "x", pid)
    assert refused.value.kind == "missing" and f"there is no process {pid} in session x" in str(refused.value)


def test_what_is_no_python_is_told_beside_the_training(shell):
    pane = shell('"$1" -c "$2" | cat', sys.executable, WORK)
    assert pane.stdout.readline() == b"up\n"
    other = shell("exec od")
    eventually(lambda: adopt.process.command_line(other.pid) == ["od"], "it is od")
    panes = [Pane("%1", other.pid, False), Pane("%0", pane.pid, False)]
    found, _, others = adopt.find_training(panes, "x")
    assert (found.id, others) == ("%0", [f"{other.pid} od"])
    assert adopt.find_training(panes[:1], "x")[1].pid == other.pid, "the only one, whatever it is"


def test_a_venv_is_known_by_the_path_it_was_called_by(tmp_path):
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    path = {"PATH": str(link.parent)}
    for argv in (["python", "x.py"], [str(link), "x.py"], ["venv/bin/python"]):
        assert adopt.python_of(argv, str(tmp_path), path, os.getpid()) == str(link)
    assert adopt.python_of(["python3.99"], "/", {}, os.getpid()) == os.readlink("/proc/self/exe")
    assert adopt.python_of(["./train"], "/", path, os.getpid()) is None


def test_a_secret_in_its_command_line_is_neither_recorded_nor_told(shell, tmp_path):
    work = "print('up', flush=1); input()"
    pane = shell('"$1" -c "$2" --api-key s3kr1t99 <&0 | cat', sys.executable, work)
    assert pane.stdout.readline() == b"up\n"
    found = [Pane("%0", pane.pid, False)]
    record, _ = adopt.run_record({}, str(tmp_path / "run"), "x", adopt.find_training(found, "x")[1])
    assert record["argv"] == [sys.executable, "-c", work, "--api-key", "[not shown]"]
    with pytest.raises(OpError) as refused:
        adopt.find_training(found, "x", 1)
    assert "--api-key" in refused.value.evidence and "s3kr1t99" not in refused.value.evidence


def test_a_secret_in_its_environment_is_hashed_and_not_kept(tmp_path):
    given = {**os.environ, "WANDB_API_KEY": "s3kr1t99", "MASTER": "tcp://me:s3kr1t99@x", "NCCL_DEBUG": "INFO"}
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given
    ) as child:
        assert child.stdout.readline() == b"up\n"
        record, _ = adopt.run_record({}, str(tmp_path / "run"), "x", adopt.process.read_stat(child.pid))
        child.communicate(b"\n", timeout=20)
    assert record["environment"]["WANDB_API_KEY"] == "s3kr1t99", "for its hash"
    kept = adopt.kept(record)
    assert kept["environment"]["NCCL_DEBUG"] == "INFO" and "s3kr1t99" not in json.dumps(kept)


def test_of_a_training_that_writes_to_a_file_that_is_the_log(tmp_path):
    own = tmp_path / "own.log"
    with own.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=out)
    eventually(lambda: own.read_bytes() == b"up\n", "it writes")
    assert adopt.join_log([], Pane("%0", 1, False), child.pid, str(tmp_path / "run.log")) == (str(own), None)
    assert (tmp_path / "run.log").read_text() == "up\n"
    child.communicate(timeout=20)


def test_its_code_is_what_lies_beside_it_and_no_environment(tmp_path):
    for path in (
        "train.py",
        "lib/a.py",
        "venv/pyvenv.cfg",
        "venv/b.py",
        ".hidden/c.py",
        "data/d.bin",
        "one/two/three/e.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.py").write_text("m")
    found = foreign_code.listing(str(tmp_path), ["python", "train.py"], str(tmp_path / "orch"))
    assert set(found) == {"train.py", "lib/a.py"} and all(len(sha256) == 64 for sha256 in found.values())
    (elsewhere / "go.py").write_text("g")
    found = foreign_code.listing(str(tmp_path / "data"), ["python", f"{elsewhere}/go.py"], "/nowhere")
    assert set(found) == {f"{elsewhere}/go.py", f"{elsewhere}/model.py"}
