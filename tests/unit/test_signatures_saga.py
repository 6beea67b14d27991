"""The field record's incidents as cases: the cause comes first, and healthy runs give nothing above info."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.diagnosis.case import LinkTrouble
from orchestrator.diagnosis.finding import CRITICAL, ORDER, WARNING
from orchestrator.reports.doctor import DoctorReport, doctor_record, render_doctor
from tests.unit import cases
from tests.unit.cases import IDENTITY, RUNTIME, cache, diagnosed, facts, ids, metrics

RACE = """\
step 1/3000 loss 9.1 18.2 Ktok/s
Exception in thread drafter-1:
Traceback (most recent call last):
  File "/root/dflash_model.py", line 545, in forward
    out = self.self_attn(hidden, mask)
  File "/root/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1790, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.
"""
OUT_OF_MEMORY = """\
Traceback (most recent call last):
  File "/root/train.py", line 90, in step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 GiB. GPU 5 has a total capacity of 139.81 GiB.
"""
IMPORT = """\
Traceback (most recent call last):
  File "/root/train.py", line 3, in <module>
    import torch
  File "/root/venv/lib/python3.12/site-packages/torch/__init__.py", line 416, in <module>
    from torch._C import *
ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory
"""
FAILED = {"exit_code": 1, "started_at": 1.0, "ended_at": 2.0}
POLLUTED = {
    "packages": {**IDENTITY["packages"], "torch": "2.11.0+cu130", "sglang": "0.5.1", "flashinfer-python": "0.4"},
    "torch": {"version": "2.11.0+cu130", "cuda": "13.0", "git_version": "e" * 40},
}


def with_settings(**settings: Any) -> dict[str, Any]:
    return {**RUNTIME, "compiler_settings": {**RUNTIME["compiler_settings"], "torch._dynamo.config": settings}}


def test_a_healthy_run_has_no_finding_and_says_what_was_seen() -> None:
    found = diagnosed()
    assert found.findings == ()
    assert "rate (20.7 Ktok/s, last good 21.2 Ktok/s)" in found.healthy
    assert not [one for one in found.not_looked if one.what not in ("session", "compiled code")]


def test_a_polluted_environment_comes_before_the_rate_that_it_cost() -> None:
    found = diagnosed(run=facts(pace=metrics(12_800.0)), identity_of_run=POLLUTED)
    assert ids(found) == ["environment-polluted", "cuda-major", "slow"]
    first = found.findings[0]
    assert "2.11.0+cu128 (CUDA 12.8" in first.what and "2.11.0+cu130" in first.what
    assert any("sglang" in line for line in first.evidence)
    assert any("12.8 Ktok/s" in line and "21.2 Ktok/s" in line and "60 %" in line for line in first.evidence)


def test_a_missing_library_names_the_package_that_brings_it() -> None:
    removed = {"packages": {name: v for name, v in IDENTITY["packages"].items() if "cudnn" not in name}}
    found = diagnosed(run=facts(log=IMPORT, exit_record=FAILED), identity_of_run=removed)
    assert ids(found)[:2] == ["missing-library", "environment-polluted"]
    assert "libcudnn.so.9" in found.findings[0].what and "nvidia-cudnn" in found.findings[0].what
    assert ids(found)[-1] == "run-dead"


def test_a_lost_cache_is_told_with_its_size_then_and_now() -> None:
    found = diagnosed(run=facts(pace=metrics(20_700.0), cache_before=cache(None, None)))
    assert ids(found) == ["cold-cache"]
    assert any("353 MB, 4120 graphs" in line and "empty" in line for line in found.findings[0].evidence)


def test_a_cache_lost_since_the_newest_run_is_told_before_the_next_launch() -> None:
    ended = facts(pace=metrics(20_700.0), exit_record={"exit_code": 0})
    found = diagnosed(run=ended, cache_now=cache(None, None))
    assert ids(found) == ["cold-cache"]
    assert any("holds empty now" in line and "353 MB" in line for line in found.findings[0].evidence)
    assert ids(diagnosed(run=ended, cache_now=cache(925_000, 6))) == ["warm-up-insufficient"]
    assert ids(diagnosed(run=ended, cache_now=cache(340_000_000, 4000))) == []
    ours = facts(pace=metrics(20_700.0), exit_record={"exit_code": 0}, compiled={"compiles": 9})
    assert ids(diagnosed(run=ours, cache_now=cache(None, None))) == []


def test_a_payload_that_compiles_before_it_trains_loses_only_time_with_its_cache() -> None:
    found = diagnosed(run=facts(phase="compiling", cache_before=cache(None, None), compile_done=1, compile_total=9))
    assert ids(found) == [] and ids(found, info=True) == ["cold-cache"]


def test_one_warmed_kernel_is_no_warm_up() -> None:
    found = diagnosed(run=facts(log=RACE, exit_record=FAILED, cache_before=cache(925_000, 6)))
    assert ids(found) == ["fx-race", "warm-up-insufficient", "run-dead"]
    assert any("0.26 %" in line and "6 graphs" in line for line in found.findings[1].evidence)


def test_the_race_comes_before_the_memory_that_it_cost() -> None:
    found = diagnosed(run=facts(log=RACE + OUT_OF_MEMORY, exit_record=FAILED, cache_before=cache(None, None)))
    assert ids(found)[0] == "fx-race"
    assert ids(found).index("memory") > 0 and ids(found)[-1] == "run-dead"
    assert any("dflash_model.py:545" in line for line in found.findings[0].evidence)


def test_what_was_tried_against_the_race_is_said_not_to_be_the_cause() -> None:
    tried = {"packages": {**IDENTITY["packages"], "transformers": "5.8.1"}}
    found = diagnosed(run=facts(log=RACE, exit_record=FAILED), identity_of_run=tried)
    assert ids(found)[0] == "fx-race"
    assert any("not the cause" in line and "transformers" in line for line in found.findings[0].evidence)


def test_a_silenced_error_is_named_before_the_fallback_that_it_hides() -> None:
    run = facts(
        pace=metrics(4_500.0, wobble=0.5, swing=0.4, peak_mib=110_000.0),
        runtime=with_settings(error_on_nested_fx_trace=False),
    )
    found = diagnosed(run=run)
    assert ids(found) == ["torch-changed", "eager-fallback", "slow"]
    assert found.findings[0].severity == CRITICAL


def test_a_fallback_is_seen_by_rate_and_memory_alone() -> None:
    found = diagnosed(run=facts(pace=metrics(4_500.0, wobble=0.5, swing=0.4, peak_mib=110_000.0)))
    assert ids(found) == ["eager-fallback", "slow"]
    assert any("110000 MiB" in line and "60000 MiB" in line for line in found.findings[0].evidence)


def test_a_fallback_is_seen_by_the_payloads_own_counter() -> None:
    run = facts(pace=metrics(20_700.0), compiled={"compiles": 9, "fallbacks": 3, "recompiles": 0})
    assert ids(diagnosed(run=run)) == ["eager-fallback"]


def test_a_stuck_tracing_flag_is_a_race_that_no_error_told_of() -> None:
    counts = {"compiles": 9, "fallbacks": 0, "recompiles": 0, "tracing_stuck": 1}
    run = facts(pace=metrics(4_500.0), compiled=counts, runtime=with_settings(error_on_nested_fx_trace=False))
    found = diagnosed(run=run)
    assert ids(found) == ["fx-race", "torch-changed", "eager-fallback", "slow"]
    assert "the tracing flag is stuck" in found.findings[0].evidence[0]
    assert any("(21 %)" in line for line in found.findings[0].evidence), found.findings[0]
    assert ids(diagnosed(run=facts(compiled={**counts, "tracing_stuck": 0}))) == []


def test_entries_of_a_hacked_run_are_named() -> None:
    writers = (("20261128-100000-aaaa", with_settings(force_compile_during_fx_trace=True)),)
    found = diagnosed(cache_writers=writers)
    assert ids(found) == ["hacked-cache"]


def test_a_function_of_torch_that_was_replaced_is_named() -> None:
    runtime = {
        **RUNTIME,
        "replaced_functions": {"torch.fx._symbolic_trace:is_fx_symbolic_tracing": "/root/dflash_model.py:12"},
    }
    found = diagnosed(run=facts(log=RACE, exit_record=FAILED, runtime=runtime))
    assert ids(found)[:2] == ["fx-race", "torch-changed"]
    assert any("is_fx_symbolic_tracing" in line for line in found.findings[1].evidence)


def test_a_file_edited_in_place_is_named() -> None:
    found = diagnosed(identity_of_run={"edited": {"dflash_model.py": "9" * 64}})
    assert ids(found) == ["code-edited"]
    assert "dflash_model.py" in found.findings[0].what
    assert found.findings[0].evidence[0] == "dflash_model.py: edited since it was deployed"


def test_a_run_that_ended_itself_is_quoted() -> None:
    said = "configuration: this run cannot resume that checkpoint"
    found = diagnosed(run=facts(phase="failed", detail=said, log="", exit_record={**FAILED, "exit_code": 2}))
    dead = next(one for one in found.findings if one.id == "run-dead")
    assert f"it said: {said}" in dead.evidence and "killed" not in dead.cause


def test_an_expected_file_that_is_another_is_named() -> None:
    about = {"found": "md5:" + "0" * 32, "as_expected": False}
    for name, command in (("/root/dflash_model.py", "orch diff"), ("model.py", "orch deploy")):
        found = diagnosed(identity_of_run={"expected": {name: about}})
        assert ids(found) == ["code-edited"]
        (told,) = found.findings
        assert told.what == f"{name} is not as `expected: hashes:` of the payload says" and told.command == command
        assert "machine itself" not in told.cause, "it may have been deployed just so"


def test_a_slow_run_with_nothing_different_says_what_is_healthy() -> None:
    found = diagnosed(run=facts(pace=metrics(15_000.0)))
    assert ids(found) == ["slow"]
    slow = found.findings[0]
    assert slow.severity == WARNING and "not known" in slow.cause
    assert any(line.startswith("healthy: ") and "GPUs (8)" in line for line in slow.evidence)


def test_more_data_alone_is_worth_a_word() -> None:
    found = diagnosed(identity_of_run={"data": {"files": 1100, "bytes": 110_000_000_000, "sample": "e" * 64}})
    assert ids(found) == [] and ids(found, info=True) == ["data-changed"]


def test_data_of_which_a_quarter_or_more_is_gone_is_no_change_on_purpose() -> None:
    half = {"files": 451, "bytes": 45_100_000_000, "sample": "e" * 64}
    found = diagnosed(identity_of_run={"data": half})
    assert ids(found) == ["data-changed"] and found.findings[0].severity == WARNING
    assert ids(diagnosed(identity_of_run={"data": {**half, "bytes": 80_000_000_000}})) == []
    assert ids(diagnosed(identity_of_run={"data": {"missing": True}})) == ["data-changed"]
    smaller = {"data": half, "spec": {**IDENTITY["spec"], "data": "/data/a-tenth"}}
    assert ids(diagnosed(identity_of_run=smaller)) == [], "another path is meant to be another"


def test_another_shape_is_no_slow_run() -> None:
    settings = {"spec": {**IDENTITY["spec"], "settings": {"steps": 3000, "train.batch": 2}}}
    found = diagnosed(run=facts(pace=metrics(14_000.0)), identity_of_run=settings)
    assert ids(found) == [] and ids(found, info=True) == ["settings-changed"]


@pytest.mark.parametrize("part", ["ssh", "pct"])
def test_a_target_that_cannot_be_reached_is_a_finding_with_its_way_out(part: str) -> None:
    link = LinkTrouble(part, "the host refused the login", "Permission denied (publickey).", "ssh-add KEY\norch hosts")
    found = diagnosed(link=link)
    assert ids(found) == [part]
    assert found.findings[0].next_step == "ssh-add KEY" and found.findings[0].command == "orch hosts"
    assert found.healthy == ()


def test_every_id_is_known_and_ranked_once() -> None:
    assert len(set(ORDER)) == len(ORDER)
    from orchestrator.diagnosis.diagnose import AREA_IDS

    assert {*AREA_IDS, "ssh", "pct"} == {*ORDER}
    assert len(AREA_IDS) == len({*AREA_IDS})


def test_a_command_names_its_target_where_there_are_several() -> None:
    found = diagnosed(run=facts(pace=metrics(15_000.0)), identity_of_run=POLLUTED, named=True)
    assert found.findings[0].command == "orch diff --target ct200"
    case = cases.case(named=True)
    assert case.orch("launch", "--resume") == "orch launch ct200 --resume", "--resume takes a word behind it for a run"
    assert case.orch("exec", "--", "df", "-h") == "orch exec --target ct200 -- df -h"
    assert case.orch("cache", "show") == "orch cache show ct200"


def test_info_comes_last() -> None:
    old = ("GPU 7: the host's kernel reported Xid 63 (row remapping), last at 2025-01-01",)
    found = diagnosed(run=facts(pace=metrics(15_000.0)), identity_of_run=POLLUTED, kernel_log=old)
    assert [one.id for one in found.findings][-2:] == ["slow", "gpu-ecc"]


def test_a_dead_run_with_a_named_cause_says_what_to_mend_first() -> None:
    found = diagnosed(run=facts(log=RACE, exit_record=FAILED, checkpoints=("step-200",)))
    dead = found.findings[-1]
    assert dead.id == "run-dead" and "fx-race" in dead.next_step
    assert dead.command == "orch launch --resume"


def test_what_changed_is_not_called_as_it_was() -> None:
    found = diagnosed(identity_of_run={"data": {"files": 1, "bytes": 1, "sample": "e" * 64}})
    assert not [text for text in found.healthy if text.startswith("code, settings and data")]


def test_the_page_has_each_finding_in_its_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    table = page.partition("## What is looked for")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| ([a-z-]+) \|", table, re.MULTILINE))[1:] == ORDER


def test_the_page_of_a_slow_run_is_short_and_its_json_is_whole() -> None:
    diagnosis = diagnosed(run=facts(pace=metrics(12_800.0)), identity_of_run=POLLUTED, gpus=None, machine=None)
    report = DoctorReport("ct200", "ct200 (container 200)", cases.RUN_ID, cases.GOOD_ID, "marked good", diagnosis)
    text = render_doctor(report)
    head, _, rest = text.partition("\n\n")
    assert head.endswith(": 3 findings") and cases.GOOD_ID in head
    assert rest.startswith("critical environment-polluted: ") or rest.startswith("warning environment-polluted: ")
    assert "\n    cause: " in rest and "\n    next: " in rest and "\n      orch diff" in rest
    last = text.splitlines()[-1]
    assert last.startswith("could not look at: ") and last.count("(") == 1 and "GPUs, disk and /dev/shm" in last, (
        "one reason is said once"
    )
    record = json.loads(json.dumps(doctor_record(report)))
    assert record["schema"] == "orch.doctor/1" and record["worst"] == report.worst
    assert [one["rank"] for one in record["findings"]] == list(range(1, len(record["findings"]) + 1))
    assert {"id", "severity", "what", "evidence", "cause", "next_step", "command"} < {*record["findings"][0]}
