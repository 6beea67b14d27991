"""What a launch asks for, what keeps it from starting, and what is said of it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Caches
from orchestrator.ledger.runspec import build_run_spec, cache_folders, new_run_id, parse_settings
from orchestrator.operations.checkpoints import Checkpoint, choose_checkpoint, kept_settings
from orchestrator.operations.launch_wait import WaitCondition, last_step, parse_condition
from orchestrator.probes.preflight import Preflight, find_problems, notes, parse_preflight
from orchestrator.reports.launch import LaunchReport, render_progress, render_waited
from tests.unit.facts import PAYLOAD, TARGET, payload

GIB = 1024**3


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("first-step", WaitCondition("first-step")),
        ("end", WaitCondition("end")),
        ("step:120", WaitCondition("step", 120)),
    ],
)
def test_what_can_be_waited_for(text: str, condition: WaitCondition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize("text", ["", "step", "step:", "step:-1", "step:x", "End", "step:1.5"])
def test_what_cannot_be_waited_for(text: str) -> None:
    with pytest.raises(UsageError):
        parse_condition(text)


def test_settings_read_as_json_where_they_can() -> None:
    given = ["steps=5", "lr=6e-4", "name=run a", "flag=true", "layers=[1, 3]", "text==x", "none=null", 'quoted="5"']
    assert parse_settings(given) == {
        "steps": 5,
        "lr": 6e-4,
        "name": "run a",
        "flag": True,
        "layers": [1, 3],
        "text": "=x",
        "none": None,
        "quoted": "5",
    }


@pytest.mark.parametrize("word", ["steps", "=5", ""])
def test_a_setting_needs_a_name_and_a_value(word: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_settings([word])


def test_run_ids_sort_by_time() -> None:
    assert new_run_id(1_796_000_000.0, "a1b2") == "20261130-005320-a1b2"
    assert new_run_id(1_796_000_000.0, "ffff") < new_run_id(1_796_000_001.0, "0000")


def test_all_three_caches_are_always_set() -> None:
    assert cache_folders(TARGET, payload(caches=Caches("/tmp/torchinductor_root", None, None))) == {
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root",
        "TRITON_CACHE_DIR": "/root/orch/caches/live/triton",
        "TORCH_EXTENSIONS_DIR": "/root/orch/caches/live/extensions",
    }


def test_settings_of_the_command_line_win() -> None:
    spec = build_run_spec(
        TARGET,
        payload(settings={"steps": 1, "lr": 2}),
        run_id="r",
        settings={"steps": 9},
        resume_from=None,
        who="me@here",
        now_s=1.0,
    )
    assert spec["settings"] == {"steps": 9, "lr": 2}
    assert (spec["targets"], spec["drafters"]) == (5, 3)


RUNS: list[dict[str, Any]] = [
    {
        "run_id": "a",
        "checkpoints": [{"name": "step-10", "complete": True}, {"name": "step-20", "complete": True}],
    },
    {"run_id": "b", "checkpoints": [{"name": "step-5", "complete": True}, {"name": "step-9", "complete": False}]},
    {"run_id": "c", "checkpoints": []},
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("last", "b/checkpoints/step-5"), ("a", "a/checkpoints/step-20"), ("a:10", "a/checkpoints/step-10")],
)
def test_resume_takes_only_complete_checkpoints(wanted: str, found: str) -> None:
    assert choose_checkpoint("/root/orch", RUNS, wanted).path == f"/root/orch/runs/{found}"


@pytest.mark.parametrize("wanted", ["b:9", "c", "zz", "a:11"])
def test_resume_names_what_there_is(wanted: str) -> None:
    with pytest.raises(UsageError) as error:
        choose_checkpoint("/root/orch", RUNS, wanted)
    assert "a:10, a:20, b:5" in error.value.evidence


def test_resume_takes_the_unique_beginning_of_a_run() -> None:
    runs = [{"run_id": f"2026-{name}", "checkpoints": [{"name": "step-1", "complete": True}]} for name in ("aa", "ab")]
    assert choose_checkpoint("/o", runs, "2026-aa:1").path == choose_checkpoint("/o", runs, "2026-aa").path
    assert choose_checkpoint("/o", runs[:1], "2026-a:1").run_id == "2026-aa"
    with pytest.raises(UsageError, match="2 runs begin with"):
        choose_checkpoint("/o", runs, "2026-a")


def test_resume_wants_a_number_for_a_step() -> None:
    with pytest.raises(UsageError, match="RUN:STEP"):
        choose_checkpoint("/root/orch", RUNS, "a:last")


def test_a_resume_names_the_settings_that_it_takes_from_the_earlier_run_and_what_the_inventory_has_now() -> None:
    earlier = Checkpoint("/c", "a", {"steps": 100, "lr": 0.1, "name": "a b", "seed": 1, "warm": 5})
    assert kept_settings(earlier, {"steps": 200, "lr": 0.1, "seed": 2, "new": 3}, {"seed": 1}) == (
        "as run a had them: steps=100 (the inventory: 200), name=a b, warm=5"
    )
    assert kept_settings(earlier, {**earlier.settings, "new": 3}, {"steps": 7}) is None


def answer(**changes: Any) -> dict[str, Any]:
    whole = {
        "live": {"held": False, "content": None},
        "python": {"path": "/root/venv/bin/python", "version": "3.12.1", "error": None},
        "tmux": {"path": "/usr/bin/tmux", "version": "3.3a", "error": None},
        "nvidia_smi": {"csv": "\n".join(f"{n}, NVIDIA H200, 143771, 0, 0" for n in range(8)), "error": None},
        "disk": {"free_bytes": 50 * GIB, "free_inodes": 10**6},
        "paths": {},
    }
    return {**whole, **changes}


def problems(**changes: Any) -> list[str]:
    return [problem.text for problem in find_problems(PAYLOAD, ready(**changes))]


def ready(**changes: Any) -> Preflight:
    return parse_preflight(answer(**changes), "/root/orch/releases/abc")


def test_a_fit_target_has_no_problems() -> None:
    assert problems() == []
    assert notes(PAYLOAD, ready()) == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"python": {"path": None, "version": None, "error": "there is no python"}}, "python: there is no python"),
        ({"disk": {"free_bytes": GIB // 2, "free_inodes": None}}, "disk: 0.5 GiB free, 1 wanted"),
        ({"disk": {"free_bytes": 50 * GIB, "free_inodes": 3}}, "disk: only 3 inodes free"),
        ({"nvidia_smi": {"csv": "0, NVIDIA H200, 143771, 0, 0", "error": None}}, "GPUs: 1 there, 8 wanted"),
        ({"nvidia_smi": {"csv": None, "error": "no devices"}}, "GPUs: no devices; 8 wanted"),
        ({"paths": {"/data": False}}, "/data is not there"),
    ],
)
def test_each_problem_is_named(changes: dict[str, Any], text: str) -> None:
    assert problems(**changes) == [text]


def test_unknown_disk_space_keeps_nothing_from_starting() -> None:
    assert problems(disk={"free_bytes": None, "free_inodes": None}) == []


def test_a_live_run_is_seen() -> None:
    live = {"held": True, "content": {"run_id": "r1"}}
    assert ready(live=live).live_run == "r1"
    assert ready(live={"held": True, "content": None}).live_run == "unknown"


def test_a_missing_tmux_is_a_note_only_where_a_session_is_wanted() -> None:
    facts = ready(tmux={"path": None, "version": None, "error": "tmux is not installed"})
    assert "tmux is not installed" in notes(PAYLOAD, facts)[0]
    assert notes(payload(session=None), facts) == ()


def test_progress_leaves_out_what_is_not_known() -> None:
    whole = {
        "phase": "training",
        "step": 120,
        "total_steps": 700,
        "loss": 1.23456,
        "tokens_per_s": 12345.0,
        "eta_s": 123.0,
    }
    assert render_progress(whole) == "training, step 120/700, loss 1.235, 12.3 Ktok/s, ETA 2 min 3 s"
    assert render_progress({"phase": "loading"}) == "loading"


def test_a_run_that_ended_before_the_step_is_not_said_to_be_running() -> None:
    report = LaunchReport(
        "ct200",
        "r1",
        7,
        None,
        "/r",
        None,
        None,
        (),
        {"exit_code": 0},
        "",
        waited="step",
        reached=False,
        status={"step": 3},
    )
    assert render_waited(report) == "ct200: run r1 ended without an error before it got there (last: running, step 3)"
    report = replace(report, reached=True, status=None)
    assert render_waited(report) == "ct200: run r1 got there and ended well"


@pytest.mark.parametrize(
    ("status", "log", "step"),
    [
        ({"step": 7}, "step 9 loss 1.0\n", 7),
        (None, "half a line\nstep 9/20 loss 1.0\n", 9),
        ({"broken": "/x"}, "nothing\nof the kind\n", None),
        (None, "", None),
    ],
)
def test_the_last_step_is_what_it_said(status: Any, log: str, step: int | None) -> None:
    assert last_step(status, log) == step
