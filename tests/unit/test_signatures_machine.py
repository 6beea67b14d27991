"""The other signatures, one case each: GPUs, processes, disk, memory, sessions, clocks, queues; and what is none."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.cli.parsers import build_parser
from orchestrator.diagnosis.case import Machine
from orchestrator.diagnosis.comparable import comparable_facts
from orchestrator.diagnosis.diagnose import diagnose
from orchestrator.diagnosis.diff import compare
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING
from orchestrator.ledger.runs import parse_runs
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.environment_finding import ERROR, NOTE, EnvironmentFinding
from orchestrator.probes.environment_finding import WARNING as DOUBT
from orchestrator.probes.gpu_samples import lasting, memory_swing
from orchestrator.probes.kill_plan import Choice, KillPlan
from orchestrator.probes.throughput import Throughput
from orchestrator.probes.training import RunPhase
from tests.unit import cases
from tests.unit.cases import GOOD_ID, IDENTITY, NOW_S, RUNTIME, cache, diagnosed, facts, gpus, ids, metrics
from tests.unit.facts import payload

FAILED = {"exit_code": 1, "started_at": 1.0, "ended_at": 2.0}
STRAY = Choice(4711, 91234, ("nvidia5",), "of this container, on a GPU", "python train.py", "S")
OURS = Choice(50, 90001, ("nvidia0",), "of the live run 20261129-141500-c3d4", "python train.py", "S")
NEIGHBOUR = Choice(None, 77, ("nvidia3",), "container 201's", "python serve.py", "S")


def plan(*, killed: tuple[Choice, ...] = (), spared: tuple[Choice, ...] = ()) -> KillPlan:
    return KillPlan((), (), killed, spared)


def healthy_and(**changes: Any) -> list[str]:
    return ids(diagnosed(**changes))


def test_a_process_that_no_run_owns_is_named_by_its_number_and_gpu() -> None:
    found = diagnosed(processes=plan(killed=(OURS, STRAY)))
    assert ids(found) == ["stray-process"]
    assert any("pid 4711 on nvidia5" in line for line in found.findings[0].evidence)
    assert found.findings[0].command == "orch reset --kill-gpus"
    assert healthy_and(processes=plan(killed=(OURS,))) == []


def test_a_neighbour_counts_only_on_a_gpu_that_it_loads() -> None:
    assert healthy_and(processes=plan(spared=(NEIGHBOUR,))) == ["gpu-neighbour"]
    idle = tuple(replace(gpu, memory_used_mib=300) if gpu.index == 3 else gpu for gpu in gpus())
    assert healthy_and(processes=plan(spared=(NEIGHBOUR,)), gpus=idle) == []
    monitor = replace(NEIGHBOUR, command="/usr/bin/nvidia-smi -l 1")
    assert healthy_and(processes=plan(spared=(monitor,))) == []


def test_a_neighbour_is_a_cause_of_a_run_that_ended_slow_or_out_of_memory_and_of_no_other() -> None:
    there = plan(spared=(NEIGHBOUR,))
    ended = {"exit_code": 0, "started_at": 1.0, "ended_at": 2.0}
    assert healthy_and(processes=there, run=facts(exit_record=ended, pace=metrics(20_700.0))) == []
    assert healthy_and(processes=there, run=facts(exit_record=ended, pace=metrics(11_700.0)))[0] == "gpu-neighbour"
    assert healthy_and(processes=there, run=facts(exit_record=FAILED, log="ValueError: no\n")) == ["run-dead"]
    no_room = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert healthy_and(processes=there, run=facts(exit_record=FAILED, log=no_room))[0] == "gpu-neighbour"
    bare = replace(NEIGHBOUR, reason="not started by a run of this target")
    assert healthy_and(processes=plan(spared=(bare,))) == ["gpu-neighbour"], "a host that is the target"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 116] Stale file handle: '/data/part-1.jsonl'",
        "OSError: [Errno 30] Read-only file system: '/root/orch/runs/x/status.json'",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_a_change_is_not_blamed_for_what_the_log_lays_to_the_world_around(line: str) -> None:
    grown = {"data": {"files": 1100, "bytes": 110_000_000_000, "sample": "e" * 64}}
    log = f'Traceback (most recent call last):\n  File "/root/train.py", line 3, in f\n    g()\n{line}\n'
    found = diagnosed(run=facts(exit_record=FAILED, log=log), identity_of_run=grown)
    assert "data-changed" not in ids(found) and "data-changed" in ids(found, info=True)
    own = log.replace(line, "ValueError: lengths differ")
    assert ids(diagnosed(run=facts(exit_record=FAILED, log=own), identity_of_run=grown))[0] == "data-changed"


def test_more_steps_are_no_cause_of_a_run_that_died() -> None:
    for name, value, expected in (("steps", 4000, ["run-dead"]), ("train.batch", 64, ["settings-changed", "run-dead"])):
        spec = {**IDENTITY["spec"], "settings": {"steps": 3000, name: value}}
        run = facts(exit_record=FAILED, log="ValueError: no\n")
        assert ids(diagnosed(run=run, identity_of_run={"spec": spec})) == expected


def test_the_load_of_now_is_no_cause_of_a_run_that_is_over() -> None:
    loaded = Machine(load=40.0, cpus=2)
    over = facts(exit_record={"exit_code": 0}, pace=metrics(11_700.0))
    assert "processors" not in diagnosed(run=over, machine=loaded).findings[0].cause
    assert "processors" in diagnosed(run=facts(pace=metrics(11_700.0)), machine=loaded).findings[0].cause


def test_a_gpu_that_is_lost_comes_first_whatever_else_there_is() -> None:
    lost = (*gpus(7), replace(gpus()[7], error="GPU is lost (NVML code 15)"))
    xid = ("GPU 7 (00000000:5D:00.0): the host's kernel reported Xid 79 (GPU has fallen off the bus)",)
    found = diagnosed(gpus=lost, kernel_log=xid, run=facts(pace=metrics(9_000.0)))
    assert ids(found)[0] == "gpu-lost"
    assert any("Xid 79" in line for line in found.findings[0].evidence)
    assert healthy_and(gpus=gpus(7)) == ["gpu-lost"], "8 are wanted"


def test_uncorrected_ecc_errors_are_told_with_their_gpu() -> None:
    bad = (*gpus(7), replace(gpus()[7], ecc_uncorrected=2))
    found = diagnosed(gpus=bad)
    assert ids(found) == ["gpu-ecc"] and "GPU 7: 2 ECC errors" in found.findings[0].what
    assert healthy_and(gpus=gpus(ecc_corrected=12)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"throttle": ("hw_thermal_slowdown",), "sm_clock_mhz": 1100, "temperature_c": 88}, ["gpu-throttled"]),
        ({"throttle": ("sw_power_cap",), "sm_clock_mhz": 1500}, []),
        ({"throttle": ("hw_thermal_slowdown",), "sm_clock_mhz": 1960}, []),
        ({"throttle": ("gpu_idle",), "sm_clock_mhz": 345, "utilization_percent": 0}, []),
        ({"throttle": None}, []),
    ],
)
def test_a_gpu_is_throttled_when_it_is_busy_and_slowed_for_a_bad_reason(
    changes: dict[str, Any], expected: list[str]
) -> None:
    assert healthy_and(gpus=gpus(**changes)) == expected


def test_clocks_below_those_of_the_last_good_run_are_told() -> None:
    clocks = {"gpu_sm_clock_mhz": [1150.0] * 8}
    good = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0, more={"gpu_sm_clock_mhz": [1755.0] * 8}))
    found = diagnosed(run=facts(pace=metrics(14_000.0, more=clocks)), good=good)
    assert ids(found) == ["gpu-throttled", "slow"]
    assert any("1150 MHz while it trains; 1755 MHz" in line for line in found.findings[0].evidence)


def test_a_disk_is_full_by_its_log_or_by_its_numbers() -> None:
    log = "OSError: [Errno 28] No space left on device: '/root/orch/runs/x/checkpoints/step-200'\n"
    assert ids(diagnosed(run=facts(log=log, exit_record=FAILED)))[0] == "disk-full"
    low = Machine(disk_free_bytes=100_000_000, inodes_free=10**6)
    found = diagnosed(machine=low)
    assert ids(found) == ["disk-full"] and found.findings[0].severity == CRITICAL
    assert healthy_and(machine=Machine(disk_free_bytes=50_000_000_000, inodes_free=10)) == ["disk-full"]
    assert healthy_and(machine=Machine(disk_free_bytes=50_000_000_000)) == []
    asks_for_none = payload(min_free_disk_gib=0.0)
    full = diagnosed(machine=Machine(disk_free_bytes=0), payload=asks_for_none)
    assert ids(full) == ["disk-full"] and full.findings[0].severity == CRITICAL
    assert healthy_and(machine=Machine(disk_free_bytes=100_000_000), payload=asks_for_none) == []


def test_shared_memory_is_too_small_by_what_the_log_says() -> None:
    log = (
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.\n"
    )
    assert ids(diagnosed(run=facts(log=log, exit_record=FAILED)))[0] == "shm-small"


def test_memory_that_ran_out_is_told_apart() -> None:
    killed = {"exit_code": 137, "oom_kills": 2}
    found = diagnosed(run=facts(exit_record=killed))
    assert ids(found) == ["memory", "run-dead"] and "container" in found.findings[0].what
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has 79 GiB\n"
    found = diagnosed(run=facts(log=oom, exit_record=FAILED))
    assert ids(found) == ["memory", "run-dead"] and found.findings[0].what == "a GPU ran out of memory"
    full = ContainerFact(5.0, 990 * 2**30, 1000 * 2**30, None)
    found = diagnosed(container=full)
    assert ids(found) == ["memory"] and found.findings[0].severity == WARNING
    assert healthy_and(container=replace(full, memory_used_bytes=900 * 2**30)) == []


def test_a_closed_session_is_worth_a_word_while_the_run_goes_on() -> None:
    session = {"wanted": "dflash", "present": False}
    found = diagnosed(run=facts(pace=metrics(20_700.0), session=session))
    assert ids(found) == [] and ids(found, info=True) == ["session-dead"]
    over = facts(exit_record={"exit_code": 0}, pace=metrics(20_700.0), session=session)
    assert ids(diagnosed(run=over), info=True) == []


@pytest.mark.parametrize(
    ("phase", "silent_s", "stalled"),
    [
        ("training", 120.0, False),
        ("training", 1000.0, True),
        ("compiling", 600.0, False),
        ("loading", 1500.0, False),
        ("compiling", 2000.0, True),
        ("evaluating", 1200.0, False),
        ("checkpointing", 1000.0, False),
    ],
)
def test_a_run_is_stalled_when_it_says_nothing_for_longer_than_its_phase_takes(
    phase: str, silent_s: float, stalled: bool
) -> None:
    run = facts(phase=phase, silent_s=silent_s, pace=metrics(20_700.0))
    assert ("run-stalled" in ids(diagnosed(run=run))) is stalled


def test_a_process_that_is_stopped_is_named_before_it_was_silent_for_long() -> None:
    run = facts(silent_s=5.0, pace=metrics(20_700.0))
    assert run.record is not None
    state = replace(run.record.state, stopped_pids=(12, 13))
    found = diagnosed(run=replace(run, record=replace(run.record, state=state)))
    assert ids(found) == ["run-stalled"]
    assert found.findings[0].evidence[0] == "pid 12 is stopped (state T, by SIGSTOP or Ctrl-Z)"
    assert found.findings[0].command == "orch exec -- kill -CONT 12 13"


@pytest.mark.parametrize(("offset_s", "expected"), [(0.4, []), (-30.0, ["clock"]), (400.0, ["clock"]), (None, [])])
def test_clocks_that_differ_are_told(offset_s: float | None, expected: list[str]) -> None:
    found = diagnosed(clock_offset_s=offset_s)
    assert ids(found, info=True) == expected
    if offset_s is not None and abs(offset_s) > 120:
        assert found.findings[0].severity == WARNING


def waiting(rate: float, drafter: float, **more: Any) -> Any:
    return facts(pace=metrics(rate, more=more), wait_shares={"drafter": drafter, "target": 0.05})


def test_starving_drafters_are_named_only_where_the_rate_fell() -> None:
    good = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0), wait_shares={"drafter": 0.1})
    found = diagnosed(run=waiting(13_000.0, 0.8), good=good)
    assert ids(found) == ["drafter-starved", "slow"]
    assert any("80 %" in line and "10 %" in line for line in found.findings[0].evidence)
    assert healthy_and(run=waiting(20_700.0, 0.95), good=good) == [], "one side always waits"


def test_idle_gpus_of_a_slow_run_mean_that_its_input_comes_late() -> None:
    busy, idle = {"gpu_utilisation_percent": [95.0] * 8}, {"gpu_utilisation_percent": [20.0] * 8}
    good = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0, more=busy))
    assert ids(diagnosed(run=waiting(9_000.0, 0.3, **idle), good=good)) == ["input-starved", "slow"]
    assert healthy_and(run=waiting(20_700.0, 0.3, **idle), good=good) == []


def test_a_seed_of_which_little_was_found_again_is_told() -> None:
    compiled = {"compiles": 9, "cache_hits": 1, "cache_misses": 17, "fallbacks": 0}
    seeded = {"seeded": {"snapshot": "nightly", "at": 1.0}}
    found = diagnosed(run=facts(pace=metrics(20_700.0), compiled=compiled, use=seeded))
    assert ids(found) == ["seed-missed"]
    assert "17 of 18 look-ups missed" in found.findings[0].evidence[0]
    assert healthy_and(run=facts(pace=metrics(20_700.0), compiled=compiled)) == [], "it was not seeded"
    most = {**compiled, "cache_hits": 17, "cache_misses": 1}
    found = diagnosed(run=facts(pace=metrics(20_700.0), compiled=most, use=seeded))
    assert ids(found) == [] and ids(found, info=True) == ["seed-missed"]


def test_a_recompile_limit_is_named_before_the_fallback() -> None:
    log = "[rank0]:W1129 torch/_dynamo/convert_frame.py:861 torch._dynamo hit config.recompile_limit (8)\n"
    found = diagnosed(run=facts(log=log, pace=metrics(4_400.0, swing=0.4)))
    assert ids(found) == ["recompile-limit", "eager-fallback", "slow"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TORCHDYNAMO_DISABLE", "1", ["torch-changed"]),
        ("TORCH_COMPILE_DISABLE", "true", ["torch-changed"]),
        ("CUDA_LAUNCH_BLOCKING", "1", ["torch-changed"]),
        ("CUDA_LAUNCH_BLOCKING", "0", []),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", "0", ["torch-changed"]),
        ("NCCL_DEBUG", "INFO", []),
    ],
)
def test_a_variable_that_turns_compiling_off_is_named(name: str, value: str, expected: list[str]) -> None:
    assert healthy_and(identity_of_run={"variables": {"values": {name: value}, "hashed": {}, "key": "k"}}) == expected


def test_a_run_that_compiled_nothing_where_the_good_one_did_runs_uncompiled() -> None:
    good = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0), compiled={"compiles": 9})
    found = diagnosed(run=facts(pace=metrics(20_000.0), compiled={"compiles": 0, "fallbacks": 0}), good=good)
    assert ids(found) == ["eager-fallback"]


def test_what_the_environment_check_finds_is_sorted_into_its_findings() -> None:
    extra = EnvironmentFinding(
        "extra", ERROR, "sglang 0.5.1 is installed; the baseline has none", "uv pip uninstall sglang"
    )
    library = EnvironmentFinding(
        "library", ERROR, "libnccl.so.2 is missing: nvidia-nccl-cu12 provides it", "pip install x", "nvidia-nccl-cu12"
    )
    foreign = EnvironmentFinding("foreign_cuda", ERROR, "nvidia-cublas 13.0 is for CUDA 13, torch for CUDA 12")
    none = EnvironmentFinding("no_baseline", NOTE, "there is nothing to compare the packages with")
    loose = EnvironmentFinding("loose", DOUBT, "2 files below site-packages that no package brought")
    assert healthy_and(environment=(extra, library, foreign, none, loose)) == [
        "missing-library",
        "environment-polluted",
        "cuda-major",
    ]
    assert healthy_and(environment=(none, loose)) == []
    assert "nvidia-nccl-cu12 brings it" in diagnosed(environment=(library,)).findings[0].what


def test_a_change_that_cost_nothing_is_worth_a_word() -> None:
    upgraded = {
        "packages": {**IDENTITY["packages"], "torch": "2.12.0+cu128"},
        "torch": {"version": "2.12.0+cu128", "cuda": "12.8", "git_version": "d" * 40},
    }
    found = diagnosed(identity_of_run=upgraded)
    assert ids(found) == [] and ids(found, info=True) == ["environment-polluted"]
    starting = facts(phase="loading", pace=None, step=None)
    assert ids(diagnosed(run=starting, identity_of_run=upgraded)) == ["environment-polluted"], "nobody knows yet"
    locked = {**upgraded, "lock": "c" * 64}
    assert ids(diagnosed(run=starting, identity_of_run=locked)) == [], "it was built from another lock, on purpose"


def test_what_was_changed_since_the_run_began_is_told_before_the_next_launch() -> None:
    now = {"packages": {**IDENTITY["packages"], "torch": "2.11.0+cu130"}}
    found = diagnosed(now=now)
    assert ids(found) == ["environment-polluted"]
    assert healthy_and(now={"edited": {"drafter.py": "7" * 64}}) == ["code-edited"]


def test_a_crash_of_the_users_own_makes_new_code_the_suspect() -> None:
    log = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: too long\n'
    changed = {"release": {**IDENTITY["release"], "tree_hash": "b" * 64, "listing": {"train.py": "2" * 64}}}
    found = diagnosed(run=facts(log=log, exit_record=FAILED), identity_of_run=changed)
    assert ids(found) == ["code-edited", "run-dead"]
    assert found.findings[0].severity == CRITICAL


def test_a_cause_that_says_itself_leaves_changes_what_they_are() -> None:
    log = "OSError: [Errno 28] No space left on device: '/root/orch/runs/x'\n"
    settings = {"spec": {**IDENTITY["spec"], "settings": {"steps": 3000, "train.batch": 2}}}
    found = diagnosed(run=facts(log=log, exit_record=FAILED), identity_of_run=settings)
    assert ids(found) == ["disk-full", "run-dead"] and found.findings[-1].severity == INFO


def test_a_run_of_no_rate_is_not_judged_by_one() -> None:
    short = facts(phase="training", phase_started_at=NOW_S - 40, tokens_per_s=3_000.0)
    found = diagnosed(run=short)
    assert ids(found) == []
    assert [one.why for one in found.not_looked if one.what == "rate"]


def test_a_last_good_run_of_no_rate_is_not_called_none() -> None:
    short = facts(GOOD_ID, exit_record={"exit_code": 0}, log="step 1/3000 loss 9.1")
    changed = {"packages": {**IDENTITY["packages"], "sglang": "0.5.1"}}
    found = diagnosed(run=facts(pace=metrics(20_700.0)), good=short, identity_of_run=changed)
    assert [one.why for one in found.not_looked if one.what == "rate"] == [
        "the last good run has not told of 2 minutes of training, or counts no tokens"
    ]
    assert f"20.7 Ktok/s over minutes; none is known of the last good run {GOOD_ID}" in found.findings[0].evidence


def test_an_unknown_shape_of_the_case_is_said_and_judges_nothing() -> None:
    bare = cases.case(gpus=None, processes=None, container=None, machine=None, clock_offset_s=None, environment=None)
    from orchestrator.diagnosis.diagnose import diagnose

    found = diagnose(replace(bare, run=None, good=None, comparison=None, since=None, cache_now=None))
    assert found.findings == () and found.healthy == ()
    assert {"run", "rate", "compile cache", "environment", "GPUs", "memory", "clock"} <= {
        one.what for one in found.not_looked
    }


def test_cold_caches_of_toys_and_of_what_was_upgraded_are_no_warning() -> None:
    toy = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0), cache_before=cache(400_000, 3))
    assert healthy_and(run=facts(pace=metrics(20_700.0), cache_before=cache(None, None)), good=toy) == []
    upgraded = {"torch": {"version": "2.12.0", "cuda": "12.8", "git_version": "d" * 40}}
    cold = facts(pace=metrics(20_700.0), cache_before=cache(None, None), runtime={**RUNTIME, "torch": "2.12.0"})
    assert ids(diagnosed(run=cold, identity_of_run=upgraded)) == []


def test_what_lasts_is_told_from_what_one_moment_shows() -> None:
    hot = gpus(2, throttle=("hw_thermal_slowdown", "sw_power_cap"), sm_clock_mhz=1100)
    cool = gpus(2, throttle=("sw_power_cap",), sm_clock_mhz=1700)
    assert [gpu.throttle for gpu in lasting([hot, cool, hot])] == [("sw_power_cap",)] * 2
    assert [gpu.throttle for gpu in lasting([hot, hot])] == [("hw_thermal_slowdown", "sw_power_cap")] * 2
    assert lasting([hot, cool])[0].sm_clock_mhz == 1700 and lasting([]) == ()
    used = [tuple(replace(gpu, memory_used_mib=mib) for gpu in gpus(2)) for mib in (60_000, 30_000, 60_000, 45_000)]
    assert memory_swing(used) == 0.5 and memory_swing(used[:3]) is None
    small = [tuple(replace(gpu, memory_used_mib=mib) for gpu in gpus(2)) for mib in (500, 3, 500, 3)]
    assert memory_swing(small) is None, "it is not the training's"
    unknown = [*used[:3], tuple(replace(gpu, memory_used_mib=None) for gpu in gpus(2))]
    assert memory_swing(unknown) is None


def test_old_words_of_the_kernel_are_no_alarm() -> None:
    xid = ("GPU 7 (00000000:5D:00.0): the host's kernel reported Xid 63 (row remapping), last at 2025-01-01",)
    found = diagnosed(kernel_log=xid)
    assert ids(found) == [] and ids(found, info=True) == ["gpu-ecc"]


def test_every_command_is_one_that_orch_takes() -> None:
    log = (
        "torch._dynamo hit config.recompile_limit (8)\n"
        "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.\n"
        "OSError: [Errno 28] No space left on device: '/x'\n"
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.\n"
    )
    everything = {
        "packages": {"torch": "2"},
        "torch": {"version": "2.11.0+cu130", "cuda": "13.0"},
        "edited": {"a.py": "1" * 64},
        "spec": {**IDENTITY["spec"], "settings": {"a": 1}},
        "data": {"files": 1, "bytes": 1, "sample": "e" * 64},
        "variables": {"values": {"TORCHDYNAMO_DISABLE": "1"}, "hashed": {}, "key": "k"},
    }
    dead = facts(log=log, exit_record={"exit_code": 137, "oom_kills": 1}, cache_before=cache(925_000, 6))
    slow = facts(pace=metrics(4_000.0, swing=0.5), session={"wanted": "x", "present": False}, cache_before=cache(None))
    hacked = {**RUNTIME, "compiler_settings": {"torch._dynamo.config": {"force_compile_during_fx_trace": True}}}
    seen = set()
    for named, past, snapshots, run in itertools.product((True, False), (True, False), ((), ("a",)), (dead, slow)):
        found = diagnosed(
            run=run,
            identity_of_run=everything,
            named=named,
            past=past,
            snapshots=snapshots,
            processes=plan(killed=(STRAY,)),
            gpus=(*gpus(6), replace(gpus()[7], error="GPU is lost"), replace(gpus()[6], ecc_uncorrected=1)),
            clock_offset_s=500.0,
            machine=Machine(disk_free_bytes=1),
            cache_writers=(("20261128-100000-aaaa", hacked),),
        )
        for one in found.findings:
            seen.add(one.id)
            if one.command is not None and one.command.startswith("orch "):
                parsed = build_parser().parse_args(shlex.split(one.command)[1:])
                told = [*getattr(parsed, "targets", ()), getattr(parsed, "target", None)]
                assert not named or "ct200" in told, one.command
    assert len(seen) >= 18, seen


def test_a_loss_that_is_no_number_is_told_while_the_run_goes_on() -> None:
    found = diagnosed(run=facts(pace=metrics(20_700.0), loss=float("nan"), checkpoints=("step-200",)))
    assert ids(found) == ["diverged"] and found.findings[0].command == "orch stop"
    assert any("step-200" in line for line in found.findings[0].evidence)
    assert healthy_and(run=facts(pace=metrics(20_700.0), loss=2.5)) == []
    assert any(text.startswith("loss (2.5)") for text in diagnosed(run=facts(loss=2.5)).healthy)


def test_of_a_loss_that_was_only_printed_the_step_is_told_and_an_ended_run_is_not_to_be_stopped() -> None:
    run = facts(exit_record={"exit_code": 0}, pace=metrics(20_700.0))
    assert run.record is not None
    told = Throughput("log", 12, 12, float("nan"), None, None, None)
    (found,) = diagnosed(run=replace(run, record=replace(run.record, status=None), throughput=told)).findings
    assert found.evidence == ("the last loss that was told: nan, at step 12",)
    assert found.next_step.startswith("go on from a checkpoint")


def test_a_power_limit_that_was_lowered_is_the_cause_of_a_slow_run() -> None:
    limited = [{**gpu, "power_limit_w": 350.0} for gpu in IDENTITY["gpus"]]
    before = [{**gpu, "power_limit_w": 700.0} for gpu in IDENTITY["gpus"]]
    good, run = facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0)), facts(pace=metrics(14_000.0))
    here, there = (comparable_facts(cases.identity(gpus=told), RUNTIME) for told in (limited, before))
    found = diagnosed(run=run, good=good, comparison=compare(there, here, None, None), since=None)
    assert ids(found)[0] == "gpu-throttled" and "power limit 350 W; 700 W" in found.findings[0].what


def test_data_that_changed_is_the_suspect_of_a_slow_run_with_nothing_else_different() -> None:
    data = {"files": 1100, "bytes": 110_000_000_000, "sample": "e" * 64}
    found = diagnosed(run=facts(pace=metrics(12_000.0)), identity_of_run={"data": data})
    assert ids(found) == ["data-changed", "slow"]


def test_how_an_adopted_run_ended_is_not_known_and_no_alarm() -> None:
    run = facts(exit_record={"exit_code": 0}, pace=metrics(20_700.0))
    assert run.record is not None
    unknown = replace(run.record.state, phase=RunPhase.ENDED_UNKNOWN, exit=None, evidence=("nobody recorded it",))
    gone = replace(run, record=replace(run.record, state=unknown))
    assert ids(diagnosed(run=gone)) == ["run-dead"]
    summary = parse_runs({"now": NOW_S, "live": {}, "runs": [{"id": run.run_id, "folder": "/x"}]}, b"")[0]
    adopted = replace(gone, summary=replace(summary, adopted=True))
    found = diagnosed(run=adopted)
    assert ids(found) == [] and ids(found, info=True) == ["run-dead"]
    stopped = replace(adopted, record=replace(run.record, state=replace(unknown, stop_asked=True)))
    assert ids(diagnosed(run=stopped), info=True) == [], "orch stop ended it"


def test_no_change_is_blamed_for_a_run_that_somebody_killed_but_for_want_of_memory() -> None:
    changed = {"spec": {**IDENTITY["spec"], "settings": {"steps": 3000, "batch": 64}}}
    for how in ({"signal": 9}, {"signal": 15}, {"exit_code": 137}):
        run = facts(exit_record={"exit_code": None, "started_at": 1.0, "ended_at": 2.0, **how}, pace=metrics(20_700.0))
        found = diagnosed(run=run, identity_of_run=changed)
        assert ids(found) == ["run-dead"] and "settings-changed" not in found.findings[0].cause, how
    assert run.record is not None
    lost = replace(run.record.state, phase=RunPhase.ENDED_UNKNOWN, exit=None, evidence=("the machine was restarted",))
    gone = replace(run, record=replace(run.record, state=lost))
    assert ids(diagnosed(run=gone, identity_of_run=changed)) == ["run-dead"]
    for own in ({"signal": 9, "oom_kills": 1}, {"signal": 11}):
        run = facts(exit_record={**FAILED, "exit_code": None, **own}, pace=metrics(20_700.0))
        assert "settings-changed" in ids(diagnosed(run=run, identity_of_run=changed)), own


def test_other_code_of_an_adopted_run_is_no_release_that_was_deployed() -> None:
    summary = parse_runs({"now": NOW_S, "live": {}, "runs": [{"id": "x", "folder": "/x"}]}, b"")[0]
    code = {"release": {"tree_hash": None, "git": None, "listing": {"src/train.py": "2" * 64}}}
    by_hand = {"summary": replace(summary, adopted=True)}
    run = replace(facts(pace=metrics(20_700.0)), **by_hand)
    good = replace(facts(GOOD_ID, exit_record={"exit_code": 0}, pace=metrics(21_200.0)), **by_hand)
    for either in ({"run": run}, {"good": good}):
        (found,) = diagnosed(identity_of_run=code, **either).findings
        assert found.id == "code-edited" and "started by hand" in found.cause


def test_each_thing_that_was_not_looked_at_has_its_own_reason() -> None:
    nothing = dict.fromkeys(("processes", "gpus", "machine", "container", "comparison"))
    why = {one.what: one.why for one in diagnose(replace(cases.case(past=True, **nothing), good=None)).not_looked}
    for area in ("processes", "GPUs", "disk and /dev/shm", "memory"):
        assert why[area] == "a past run is judged by its record alone", area
    assert why["code, settings and data"] == "there is no good run before it to compare with"


def test_a_last_good_run_without_a_rate_is_not_called_missing() -> None:
    changed = {"spec": {**IDENTITY["spec"], "settings": {"steps": 3000, "lr": 2}}}
    brief = facts(GOOD_ID, exit_record={"exit_code": 0})
    (found,) = diagnosed(good=brief, identity_of_run=changed).findings
    assert found.evidence[-1].endswith(f"over minutes; none is known of the last good run {GOOD_ID}")


def test_shapes_that_are_compiled_again_and_again_are_the_cause_of_a_slow_run() -> None:
    counters = {"compiles": 60, "fallbacks": 0, "recompiles": 51}
    found = diagnosed(run=facts(pace=metrics(12_000.0), compiled=counters))
    assert ids(found) == ["recompile-limit", "slow"]
    assert "51 recompiles after the start; 0 at" in found.findings[0].evidence[0]
    assert healthy_and(run=facts(pace=metrics(20_700.0), compiled=counters)) == [], "it costs it nothing"


def test_a_loaded_machine_is_said_of_a_slow_run() -> None:
    loaded = Machine(disk_free_bytes=10**12, load=96.0, cpus=32)
    found = diagnosed(run=facts(pace=metrics(12_000.0)), machine=loaded)
    assert ids(found) == ["slow"] and "other programs" in found.findings[0].cause
    assert any("load is 96 on 32 processors" in line for line in found.findings[0].evidence)
    assert healthy_and(machine=loaded) == []


def test_what_holds_the_memory_that_a_run_lacked_comes_before_what_changed() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has 79 GiB\n"
    changed = {"release": {**IDENTITY["release"], "tree_hash": "b" * 64, "listing": {"train.py": "2" * 64}}}
    found = diagnosed(run=facts(log=log, exit_record=FAILED), identity_of_run=changed, processes=plan(killed=(STRAY,)))
    assert ids(found) == ["stray-process", "memory", "run-dead"]
