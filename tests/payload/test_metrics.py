"""What metrics.jsonl and the trackers are given."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import contract
import progress
import pytest
import torch
import trackers
from config import ConfigError
from loss import block_loss
from meter import AcceptanceSince, PhaseTimes, mean_facts
from nvml import GpuSampler
from progress import Progress
from tiny import tiny_config
from trackers import numbers_of, open_trackers


def test_accuracy_and_survival_of_each_slot():
    head = torch.nn.Identity()  # a hidden state is its own logits
    labels = torch.tensor([[[1, 1, 1], [1, 1, 1], [1, 1, 1]]])
    supervised = torch.tensor([[[True, True, True], [True, True, True], [True, False, False]]])
    guesses = torch.tensor([[[0, 1, 1, 0], [0, 1, 0, 1], [0, 1, 1, 1]]])
    hidden = torch.nn.functional.one_hot(guesses, 3).float()
    outcome = block_loss(hidden, labels, supervised, head, weighting="decay", decay=4.0, chunk_blocks=8)
    assert outcome.facts() == {
        "accuracy": pytest.approx(5 / 7),
        "simulated_acceptance": pytest.approx(1 + (2 + 1 + 1) / 3),
        "slot_accuracy": pytest.approx([1.0, 0.5, 0.5]),
        "slot_survival": pytest.approx([1.0, 0.5, 0.0]),
    }


def test_a_record_has_the_rate_since_the_line_before_and_over_the_long_window(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    told, seen = Progress(tmp_path), []
    told.trackers.append(lambda step, numbers: seen.append((step, numbers)))
    told.start_training(0, 100)
    for step, tokens in enumerate([100, 100, 400], 1):
        clock.now += 10
        told.step(step, 100, tokens, 1.0)
        told.line(step, 100, 1.0, {"slot_accuracy": [0.5, 0.25]})
    last = json.loads((tmp_path / contract.METRICS).read_text().splitlines()[-1])
    assert (last["tokens_per_s"], last["tokens_per_s_window"]) == (40.0, 20.0)
    assert last["peak_memory_mib"] is None
    assert seen[-1][0] == 3
    assert seen[-1][1]["slot_accuracy/2"] == 0.25


class Nvml(SimpleNamespace):
    """A double of the module: two GPUs of three, the second of which tells no power."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    def nvmlInit(self):
        self.begun = True

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert self.begun
        return {"GPU-a": 0, "GPU-c": 2}[uuid]

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return SimpleNamespace(gpu=90 + gpu)

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(used=(gpu + 1) * 2**30)

    def nvmlDeviceGetPowerUsage(self, gpu):
        if gpu:
            raise RuntimeError("Not Supported")
        return 412_500

    def nvmlDeviceGetTemperature(self, gpu, kind):
        return 60 + gpu

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return 1980


def test_a_record_has_what_nvml_says_of_the_gpus_torch_uses(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    told, seen = Progress(tmp_path), []
    told._sample_gpus = GpuSampler(lambda: ["GPU-a", "GPU-c"])
    told.trackers.append(lambda step, numbers: seen.append(numbers))
    told.line(1, 2, 1.0, {})
    record = json.loads((tmp_path / contract.METRICS).read_text())
    assert record["gpu_utilisation_percent"] == [90.0, 92.0]
    assert record["gpu_memory_used_mib"] == [1024.0, 3072.0]
    assert record["gpu_power_w"] == [412.5, None]
    assert (record["gpu_temperature_c"], record["gpu_sm_clock_mhz"]) == ([60.0, 62.0], [1980.0, 1980.0])
    assert seen[0]["gpu_power_w/1"] == 412.5 and "gpu_power_w/2" not in seen[0]


@pytest.mark.parametrize("module", [None, SimpleNamespace(nvmlInit=lambda: 1 / 0)])
def test_without_nvml_nothing_fails_and_it_is_not_asked_again(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    asked = []
    sampler = GpuSampler(lambda: asked.append(1) or ["GPU-a"])
    assert sampler() == sampler() == {}
    assert len(asked) == 1
    assert GpuSampler()() == {}, "no GPU is used here"


def test_where_a_steps_time_goes_is_told_since_the_line_before():
    clock = SimpleNamespace(now=0.0)
    phases = PhaseTimes(lambda: clock.now)
    for _ in range(2):
        for phase, seconds in [("wait", 1.0), ("learn", 3.0), ("wait", 1.0)]:
            with phases(phase):
                clock.now += seconds
        phases.step_done()
    assert phases.take() == {"phase_s/wait": 2.0, "phase_s/learn": 3.0}
    assert phases.take() == {}


def test_replicas_are_averaged_slot_by_slot():
    replicas = [{"accuracy": n, "slot_accuracy": [n, 2 * n]} for n in (1.0, 3.0)]
    assert mean_facts(replicas) == {"accuracy": 2.0, "slot_accuracy": [2.0, 4.0]}


def test_the_acceptance_is_that_since_it_was_last_taken():
    since = AcceptanceSince()
    assert since.take() is None
    since.add([SimpleNamespace(simulated_acceptance=torch.tensor(length)) for length in (2.0, 3.0)])
    assert since.take(least=2) == 2.5
    assert since.take() is None
    since.add([SimpleNamespace(simulated_acceptance=torch.tensor(7.0))])
    assert since.take(least=2) is None, "one batch does not make a checkpoint the best"


def test_trackers_get_numbers_only_when_asked_for(tmp_path, monkeypatch):
    written = []
    board = SimpleNamespace(
        SummaryWriter=lambda folder: SimpleNamespace(
            add_scalar=lambda *given: written.append((folder, *given)), flush=lambda: None
        )
    )
    run = SimpleNamespace(log=lambda numbers, step: written.append((numbers, step)))
    started = {}
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **how: started.update(how) or run))
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: object())
    assert open_trackers(tiny_config().log, tmp_path, "r") == []
    both = open_trackers(tiny_config(log__tensorboard=True, log__wandb=True).log, tmp_path, "r")
    numbers = numbers_of({"time": 1.0, "step": 5, "loss": 2, "note": "text", "none": None})
    for tracker in both:
        tracker(5, numbers)
    assert written == [(str(tmp_path / "tensorboard"), "loss", 2.0, 5), ({"loss": 2.0}, 5)]
    assert (started["mode"], started["dir"]) == ("offline", str(tmp_path))


def test_a_tracker_that_is_not_installed_is_named_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"log\.wandb: this Python has no wandb: pip install wandb"):
        open_trackers(tiny_config(log__wandb=True).log, tmp_path, "r")
