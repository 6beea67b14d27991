"""Several targets and replicas in one process: who gets what, equal weights, and whose error it was."""

from __future__ import annotations

import json

import contract
import feed
import pytest
import torch
import workers
from checkpoint import WEIGHTS
from devices import DeviceError, spread
from feed import Course
from forward import Ends
from safetensors.torch import load_file
from test_run import start, status
from tiny import tiny_config, tiny_drafter, tiny_target
from workers import Crew, Replica, ReplicasDiffer


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / contract.METRICS).read_text().splitlines()]


@pytest.fixture(scope="module")
def two_and_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    with pytest.MonkeyPatch.context() as patch:
        assert start(folder, patch, targets=2, drafters=2, device="cpu") == contract.EXIT_OK
    return folder


def test_two_replicas_learn_what_one_learns_in_two_parts(two_and_two, tmp_path, monkeypatch):
    one = tmp_path / "one"
    assert start(one, monkeypatch, train__accumulation=2) == contract.EXIT_OK
    assert losses(two_and_two) == pytest.approx(losses(one), rel=1e-4)
    both = [load_file(run / contract.CHECKPOINTS / "step-4" / WEIGHTS) for run in (two_and_two, one)]
    for name in both[0]:
        torch.testing.assert_close(both[0][name], both[1][name], rtol=1e-3, atol=1e-4)


def test_waits_of_both_sides_are_measured(two_and_two):
    line = json.loads((two_and_two / contract.METRICS).read_text().splitlines()[-1])
    assert line["target_wait_share"] >= 0 and 0 < line["drafter_wait_share"] < 1
    shares = {"target": line["target_wait_share"], "drafter": line["drafter_wait_share"]}
    assert status(two_and_two)["wait_shares"] == shares


def test_a_run_goes_on_with_fewer_replicas_where_the_data_stood(two_and_two, tmp_path, monkeypatch):
    met = []
    real = feed.make_batch

    def noting(number, *rest):
        met.append(number)
        return real(number, *rest)

    monkeypatch.setattr(feed, "make_batch", noting)
    half = two_and_two / contract.CHECKPOINTS / "step-2"
    assert start(tmp_path / "run", monkeypatch, resume_from=str(half)) == contract.EXIT_OK
    assert met == [5, 6]


def test_every_batch_is_made_once_and_by_one_target():
    course = Course(first_step=3, last_step=4, batches_met=10, parts=2, replicas=3, targets=2)
    batches = list(course.all())
    assert [number for number, _, _ in batches] == list(range(11, 23))
    assert [replica for _, _, replica in batches] == [0, 1, 2] * 4
    assert course.number(4, 1, 2) == 22
    assert course.met_after(4) == 22
    assert {course.target(number) for number, _, _ in batches} == {0, 1}


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_a_replicas_thread_is_the_runs_error(failing, tmp_path, monkeypatch, capsys):
    real = Replica.learn

    def learn(self, step, course):
        if step == 3 and self.number == failing:
            raise RuntimeError(f"replica {failing} broke at step 3")
        return real(self, step, course)

    monkeypatch.setattr(Replica, "learn", learn)
    code = start(tmp_path / "run", monkeypatch, drafters=2, device="cpu")
    assert code == contract.EXIT_FAILED
    assert f"replica {failing} broke at step 3" in capsys.readouterr().err
    assert status(tmp_path / "run")["phase"] == "failed"


def test_an_eager_fallback_saves_the_last_step_and_stops_by_name(tmp_path, monkeypatch, capsys):
    real = workers.step_loss

    def falling_back(batch, *rest):
        if batch.step == 4:
            workers_seen.append(1)
            from sealing import eager_fallback

            eager_fallback("flex_attention")
        return real(batch, *rest)

    workers_seen = []
    monkeypatch.setattr(workers, "step_loss", falling_back)
    assert start(tmp_path / "run", monkeypatch) == contract.EXIT_FAILED
    assert workers_seen
    assert "after step 3, which is saved: flex_attention ran uncompiled" in capsys.readouterr().err
    assert (tmp_path / "run" / contract.CHECKPOINTS / "step-3" / contract.CHECKPOINT_MARKER).is_file()


def crew_of(count):
    config, target = tiny_config(), tiny_target()
    ends = Ends(target.embed, target.to_logits)
    return Crew([Replica(number, tiny_drafter(target), ends, 1, config) for number in range(count)], 1)


@pytest.mark.parametrize("how", ["by a little", "by two values in each other's place", "far behind"])
def test_a_replica_that_strays_is_named(how, monkeypatch):
    monkeypatch.setattr(workers, "HASHED_AT_ONCE", 7)
    crew = crew_of(3)
    crew.check_equal(7)
    weight = crew.replicas[2].drafter.norm.weight
    with torch.no_grad():
        if how == "by a little":
            weight[3] += 1e-6
        else:
            for each in crew.replicas:
                each.drafter.norm.weight[0] = 2.0
            other = 3 if "two values" in how else 14
            weight[0], weight[other] = 1.0, 2.0
    with pytest.raises(
        ReplicasDiffer, match=r"after step 7 replica 2 differs from replica 0 in 1 tensors: norm\.weight"
    ):
        crew.check_equal(7)
    crew.close()


def test_gradients_are_averaged_over_the_replicas():
    crew = crew_of(3)
    for number, replica in enumerate(crew.replicas):
        for parameter in replica.drafter.parameters():
            parameter.grad = torch.full_like(parameter, float(number))
    crew.average_gradients()
    assert all((p.grad == 1.0).all() for replica in crew.replicas for p in replica.drafter.parameters())
    crew.close()


def test_where_targets_and_drafters_go():
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    asked = {"targets": 5, "drafters": 3}
    eight = spread(gpu, gpus=8, as_asked=False, **asked)
    assert [device.index for device in (*eight.targets, *eight.drafters)] == list(range(8))
    assert len(eight.targets) == 5
    shared = spread(cpu, gpus=0, as_asked=False, **asked)
    assert (shared.targets, shared.drafters) == ((cpu,), (cpu,))
    assert "asked for 5 target(s) and 3 drafter(s); one target thread and one drafter serve them" in shared.note
    assert len(spread(cpu, gpus=0, as_asked=True, **asked).drafters) == 3
    with pytest.raises(DeviceError, match="torch sees 7 GPUs"):
        spread(gpu, gpus=7, as_asked=True, **asked)
