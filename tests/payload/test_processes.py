"""One process a device, on gloo: the same training as with threads, and whose end it was when one of them ends.

Each process imports torch for seconds, so there are few runs, and each shows several things.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import contract
import pytest
import supervisor
import torch
from checkpoint import WEIGHTS, complete_steps
from devices import DeviceError, Placement, choose_engine, spread
from handoff import expecting
from ranks import EXIT_LEADER_TELLS, EXIT_PART_DONE, EXIT_PEER_LOST, Verdict, ending, environment_of, judge, ranks_of
from safetensors.torch import load_file
from test_run import start, status
from test_workers import losses
from tiny import PAYLOAD, TINY

DEADLINE_S = 200
ENDLESS = {"steps": 1_000_000, "checkpoint.every_steps": 1_000_000, "device": "cpu", "engine": "processes"}


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


class Run:
    """`python train.py` as orch starts it."""

    def __init__(self, folder: Path, resume_from: Path | None = None, **changes: object) -> None:
        self.folder = folder
        folder.mkdir()
        settings = {**TINY, **ENDLESS, **changes}
        spec = contract.RunSpec(run_id="run", settings=settings, resume_from=resume_from and str(resume_from))
        contract.write_json(folder / contract.RUN_SPEC, spec)
        environment = {**os.environ, contract.RUN_DIR_VARIABLE: str(folder)}
        with (folder / contract.RUN_LOG).open("wb") as log:
            argv = [sys.executable, "train.py"]
            self.process = subprocess.Popen(
                argv, cwd=PAYLOAD, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log(self) -> str:
        return (self.folder / contract.RUN_LOG).read_text()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.log() or self.process.poll() is not None, f"no {text!r} in:\n{self.log()}")
        assert text in self.log(), self.log()

    def pids(self) -> dict[str, int]:
        return {name: int(pid) for name, pid in re.findall(r"started (\w+ \d+) \(rank \d+, pid (\d+)", self.log())}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.end()


@pytest.fixture(scope="module")
def two_and_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two targets and two drafters, a process each."""
    folder = tmp_path_factory.mktemp("runs") / "processes"
    with pytest.MonkeyPatch.context() as patch:
        assert start(folder, patch, targets=2, drafters=2, device="cpu", engine="processes") == contract.EXIT_OK
    return folder


def test_four_processes_learn_what_four_threads_learn(two_and_two, tmp_path, monkeypatch):
    threads = tmp_path / "threads"
    assert start(threads, monkeypatch, targets=2, drafters=2, device="cpu", engine="threads") == contract.EXIT_OK
    assert losses(two_and_two) == pytest.approx(losses(threads), rel=1e-5)
    both = [load_file(run / contract.CHECKPOINTS / "step-4" / WEIGHTS) for run in (two_and_two, threads)]
    assert both[0].keys() == both[1].keys()
    for name in both[0]:
        torch.testing.assert_close(both[0][name], both[1][name], rtol=1e-4, atol=1e-5)
    lines = [json.loads((run / contract.METRICS).read_text().splitlines()[-1]) for run in (two_and_two, threads)]
    assert lines[0].keys() == lines[1].keys()
    # AdamW and clipping hide a wrong scale of the gradients from everything but their norm.
    assert lines[0]["gradient_norm"] == pytest.approx(lines[1]["gradient_norm"], rel=1e-4)
    assert lines[0]["simulated_acceptance"] == pytest.approx(lines[1]["simulated_acceptance"])
    assert lines[0]["target_wait_share"] >= 0 and 0 < lines[0]["drafter_wait_share"] < 1


def test_the_record_names_engine_and_ranks_and_the_run_ends_as_every_run(two_and_two):
    facts = json.loads((two_and_two / contract.RUNTIME).read_text())
    assert facts["engine"] == "processes"
    assert [(one["role"], one["index"]) for one in facts["ranks"]] == [
        ("target", 0),
        ("target", 1),
        ("drafter", 0),
        ("drafter", 1),
    ]
    assert not any(alive(one["pid"]) for one in facts["ranks"])
    assert status(two_and_two)["phase"] == "done"
    assert json.loads((two_and_two / contract.RESULT).read_text())["lossless"] is True
    assert not list(two_and_two.glob(".job*"))


def test_a_warm_up_of_four_processes_ends_before_the_first_batch(tmp_path, monkeypatch):
    folder = tmp_path / "warm"
    code = start(folder, monkeypatch, targets=2, drafters=2, device="cpu", engine="processes", warmup=True)
    assert code == contract.EXIT_OK and status(folder)["phase"] == "done"
    assert not (folder / contract.METRICS).exists() and not (folder / contract.CHECKPOINTS).exists()
    runtime = json.loads((folder / contract.RUNTIME).read_text())
    assert runtime["compile_plan"] == {"dynamic": False, "graphs": {}, "items": []}  # nothing is compiled for a CPU
    assert set(runtime["first_step"]) == {"imports_s", "load_s", "compile_s", "total_s"}


def test_threads_go_on_where_processes_stopped(two_and_two, tmp_path, monkeypatch):
    half = two_and_two / contract.CHECKPOINTS / "step-2"
    resumed = tmp_path / "resumed"
    code = start(resumed, monkeypatch, resume_from=str(half), targets=2, drafters=2, device="cpu", engine="threads")
    assert code == contract.EXIT_OK
    assert losses(resumed) == pytest.approx(losses(two_and_two)[2:], rel=1e-5)


def test_a_killed_rank_is_named_and_the_run_goes_on_from_its_checkpoint_until_asked_to_stop(
    two_and_two, tmp_path, runs
):
    runs.append(
        Run(tmp_path / "killed", two_and_two / contract.CHECKPOINTS / "step-2", **{"checkpoint.every_steps": 1})
    )
    killed = runs[0]
    killed.wait_for("step 5/")
    killed.process.send_signal(signal.SIGUSR1)
    for place in ("in serve", "in train_drafter"):
        killed.wait_for(place)
    pids = killed.pids()
    os.kill(pids["target 0"], signal.SIGKILL)
    began = time.monotonic()
    assert killed.process.wait(20) == contract.EXIT_FAILED
    assert time.monotonic() - began < 5
    said = rf"target 0 \(rank 0, pid {pids['target 0']}, cpu\) was killed by SIGKILL"
    last = max(complete_steps(killed.folder / contract.CHECKPOINTS))
    assert re.search(said + rf".*last good checkpoint: \S+/step-{last}\n", killed.log()), killed.log()
    assert status(killed.folder)["phase"] == "failed"
    assert re.match(said, status(killed.folder)["detail"])
    assert not any(alive(pid) for pid in pids.values())

    runs.append(Run(tmp_path / "again", killed.folder / contract.CHECKPOINTS / f"step-{last}"))
    again = runs[1]
    again.wait_for(f"step {last + 2}/")
    os.killpg(again.process.pid, signal.SIGTERM)  # as Ctrl-C does: to the ranks, too
    assert again.process.wait(60) == contract.EXIT_STOPPED_WITH_CHECKPOINT, again.log()
    (kept,) = complete_steps(again.folder / contract.CHECKPOINTS)
    assert kept >= last + 2
    assert status(again.folder)["phase"] == "stopping"
    assert not any(alive(pid) for pid in again.pids().values())


def test_nothing_is_left_of_a_run_whose_first_process_was_killed(tmp_path, runs):
    runs.append(Run(tmp_path / "run"))
    until(lambda: len(runs[0].pids()) == 2, "the ranks were not started")
    pids = runs[0].pids()
    # Before they are ready for it: it waits until they are.
    os.killpg(runs[0].process.pid, signal.SIGUSR1)
    os.killpg(runs[0].process.pid, signal.SIGTERM)
    until(lambda: runs[0].log().count("most recent call first") >= len(pids), "no stacks were shown", 60)
    assert all(alive(pid) for pid in pids.values()), runs[0].log()
    runs[0].end()
    until(lambda: not any(alive(pid) for pid in pids.values()), "a rank outlived the run", 10)


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setattr(supervisor, "RANK", Path(__file__).parent / "broken_rank.py")
    return lambda fault: monkeypatch.setenv("BREAK", fault)


def test_an_error_in_a_target_is_the_runs_error_with_its_traceback(broken, tmp_path, monkeypatch, capfd):
    broken("target 0 raises")
    assert start(tmp_path / "run", monkeypatch, device="cpu", engine="processes") == contract.EXIT_FAILED
    said = capfd.readouterr().err
    assert "in make_batch" in said
    assert re.search(r"target 0 \(rank 0, pid \d+, cpu\) failed: RuntimeError: the target broke at step 3", said)
    assert "the target broke at step 3" in status(tmp_path / "run")["detail"]


def test_a_loss_that_is_no_number_in_one_drafter_stops_all_and_names_the_step(broken, tmp_path, monkeypatch, capfd):
    broken("drafter 1 poisoned")
    code = start(tmp_path / "run", monkeypatch, drafters=2, device="cpu", engine="processes")
    assert code == contract.EXIT_FAILED
    said = r"TrainingError: step 3: drafter 1: the loss is nan; rows \[\d+, \d+\]; last good checkpoint: \S*step-2"
    assert re.search(said, capfd.readouterr().err)
    assert re.match(said, status(tmp_path / "run")["detail"])
    assert complete_steps(tmp_path / "run" / contract.CHECKPOINTS) == [2]


RANKS = ranks_of(2, 2, on_gpus=True, visible="4,5,6,7")
LEADER = 2
DONE = EXIT_PART_DONE


@pytest.mark.parametrize(
    ("codes", "code", "culprit", "at_once"),
    [
        ((DONE, DONE, None, DONE), None, None, None),  # the others are done and the leader evaluates
        ((DONE, None, contract.EXIT_OK, DONE), contract.EXIT_OK, None, True),
        ((DONE, 0, None, None), contract.EXIT_FAILED, 1, False),  # something in it has called exit
        ((None, None, contract.EXIT_STOPPED_WITH_CHECKPOINT, None), 3, None, True),
        ((None, None, contract.EXIT_FAILED, 1), contract.EXIT_FAILED, None, True),
        ((None, EXIT_PEER_LOST, None, -9), contract.EXIT_FAILED, 3, True),
        ((EXIT_PEER_LOST, 1, EXIT_PEER_LOST, None), contract.EXIT_FAILED, 1, False),
        ((None, None, EXIT_PEER_LOST, None), contract.EXIT_FAILED, 2, False),
        ((None, None, None, EXIT_LEADER_TELLS), None, None, None),
    ],
)
def test_whose_end_it_was(codes, code, culprit, at_once):
    assert RANKS[LEADER].leads
    verdict = judge(dict(zip(RANKS, codes, strict=True)))
    if code is None:
        assert verdict is None
        return
    assert (verdict.code, verdict.culprit and verdict.culprit.number, verdict.at_once) == (code, culprit, at_once)


def test_nobody_is_waited_for_who_waits_for_what_never_comes():
    """The others wait for what the leader prepares: a wrong setting was answered 20 seconds late."""

    def patience_s(code: int) -> float:
        return supervisor.patience_s(Verdict(code, None, at_once=True))

    assert patience_s(contract.EXIT_BAD_CONFIG) == patience_s(contract.EXIT_STOPPED_EMPTY_HANDED) == 0.0
    assert 0.0 < patience_s(contract.EXIT_FAILED) < patience_s(contract.EXIT_STOPPED_WITH_CHECKPOINT)
    assert supervisor.patience_s(Verdict(contract.EXIT_FAILED, RANKS[0], at_once=True)) == 0.0


def test_each_rank_sees_its_own_gpu_alone_and_meets_the_others_on_loopback():
    made = environment_of(RANKS[3], {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "HOME": "/root"})
    assert made == {
        "CUDA_VISIBLE_DEVICES": "7",
        "HOME": "/root",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    assert ending(0) == "ended before its part was done (exit code 0)"
    assert ending(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert [rank.visible for rank in ranks_of(1, 1, on_gpus=True)] == ["0", "1"]


def test_who_still_waits_for_a_target():
    items = iter([(1, 1, 0), (2, 1, 1), (3, 2, 0), (4, 2, 1)])
    next(items)
    assert expecting(items, 2) == {0, 1}
    assert list(items) == [(4, 2, 1)]
    assert expecting(iter([(9, 5, 1)]), 2) == {1}


def test_several_gpus_get_processes_and_one_device_gets_threads():
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    several = spread(gpu, gpus=8, as_asked=False, targets=5, drafters=3)
    single = Placement((gpu,), (gpu,), "one GPU, shared")
    assert choose_engine("auto", several) == "processes"
    assert choose_engine("threads", several) == "threads"
    assert choose_engine("auto", single) == "threads"
    assert choose_engine("auto", spread(cpu, gpus=0, as_asked=True, targets=1, drafters=1)) == "threads"
    with pytest.raises(DeviceError, match="there is one GPU"):
        choose_engine("processes", single)
