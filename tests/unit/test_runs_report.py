"""Runs as a table and as JSON, one run in groups. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.ledger.fingerprint import identity_hash, parse_fingerprint
from orchestrator.ledger.index_rows import parse_summary, summary_line
from orchestrator.ledger.journal import parse_journal_entry
from orchestrator.ledger.records import parse_run_record
from orchestrator.ledger.runs import choose_run, parse_runs
from orchestrator.reports.run_detail import RunDetail, render_run, run_record
from orchestrator.reports.runs import RunsReport, render_runs, runs_record
from orchestrator.reports.status import StatusReport, release_text, result_lines

IDS = ["20261129-141500-a1b2", "20261129-141500-a1ff", "20261130-005320-ffff"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.dictionaries(st.text(), x) | st.lists(x),
    max_leaves=5,
)
FINGERPRINT: dict[str, Any] = {
    "schema": "orch.fingerprint/1",
    "release": {
        "tree_hash": "a" * 64,
        "files": 31,
        "bytes": 141_000,
        "pushed_at": 1_796_000_000.0,
        "deployed_by": "ann@laptop",
        "git": {"commit": "b" * 40, "branch": "main", "dirty_files": [f"f{n}.py" for n in range(7)]},
    },
    "python": {"version": "3.12.1", "executable": "/root/venv/bin/python"},
    "packages": {"torch": "2.11.0+cu128", "sglang": "0.5", "zzz": "1"},
    "torch": {"version": "2.11.0+cu128", "cuda": "12.8", "git_version": "c" * 40},
    "driver": {"version": "580.65.06"},
    "nvidia_smi": {"csv": "0, NVIDIA H200, 143771, 0, 0\n1, NVIDIA H200, 143771, 0, 0\n", "error": None},
    "variables": {"values": {"NCCL_DEBUG": "INFO"}, "names": ["HF_TOKEN"]},
    "limits": {"memory_bytes": 68_719_476_736, "cpu_cores": 16.0, "cpus": [0, 1], "shm_bytes": 1, "disk_free_bytes": 2},
    "machine": {"kernel": "6.8.12", "libc": "glibc 2.39", "hostname": "ct200"},
    "cache": {
        "folders": {"TRITON_CACHE_DIR": {"path": "/t", "exists": True, "bytes": 9, "files": 2, "complete": True}}
    },
    "unknown": {"cache": "not done within 3 s"},
}


def run(**changes: Any) -> dict[str, Any]:
    return {
        "id": IDS[0],
        "folder": f"/root/orch/runs/{IDS[0]}",
        "spec": {"created_at": 1_796_000_000.0, "launched_by": "ann@laptop", "argv": ["python", "train.py"]},
        "exit": {"exit_code": 0, "started_at": 1_796_000_000.0, "ended_at": 1_796_003_720.0},
        "status": {"phase": "done", "step": 700, "total_steps": 700, "tokens_per_s": 20500.0},
        "checkpoints": [{"name": "step-700", "complete": True}, {"name": "step-710", "complete": False}],
        "git": {"commit": "b" * 40, "branch": "main", "dirty": 1},
        "tree_hash": "a" * 64,
        **changes,
    }


MORE = ("remarks", "samples", "cache_before", "cache_after", "broken", "wrapper", "mark", "result")


def report(*runs: dict[str, Any], total: int | None = None) -> RunsReport:
    found = parse_runs({"runs": list(runs), "now": 1_796_004_000.0, "live": {}}, b"")
    return RunsReport("ct200", "ct200", len(found) if total is None else total, found)


def test_a_line_a_run() -> None:
    head, columns, line, older = render_runs(report(run(), total=3)).splitlines()
    assert head == "ct200" and columns.split()[0] == "run"
    assert line.split("  ")[1:] and IDS[0] in line and "2026-11-30 00:53:20" in line and "1 h 2 min" in line
    for part in ("ended well", "700/700", "20.5 Ktok/s", "a" * 12 + "  ", "b" * 10 + "+1"):
        assert part in line
    assert older.strip() == "2 more: orch runs -n 3"


def test_a_narrow_terminal_gets_the_columns_that_fit_and_is_told() -> None:
    stopped = run(exit={"exit_code": 143, "started_at": 0.0, "ended_at": 9.0}, stop={"asked_at": 1})
    shown = render_runs(report(stopped, run()), 80)
    _, columns, *lines, left_out = shown.splitlines()
    assert max(map(len, shown.splitlines())) <= 80
    assert "started" not in columns and "ended" in columns and "started" in left_out and IDS[0] in lines[0]
    assert "not shown" not in render_runs(report(run()), 200)


def test_json_is_strict_and_says_null() -> None:
    nan = run(status={"step": 1, "loss": float("nan"), "tokens_per_s": float("inf")})
    whole = json.loads(json.dumps(runs_record(report(nan, run(exit=None, status=None, git=None))), allow_nan=False))
    assert whole["schema"] == "orch.runs/1"
    assert [one["phase"] for one in whole["runs"]] == ["ended", "not started"]
    assert whole["runs"][1]["git_commit"] is None and whole["runs"][1]["throughput"] is None


@pytest.mark.parametrize(
    ("changes", "outcome", "failed"),
    [
        ({"exit": {"exit_code": 1}}, "failed: exit code 1", True),
        ({"exit": {"signal": 9}}, "failed: killed by SIGKILL", True),
        ({"exit": {"signal": 15}, "stop": {"asked_at": 1}}, "was stopped (killed by SIGTERM)", False),
        ({"exit": {"exit_code": 1}, "stop": {"asked_at": 1}}, "failed: exit code 1", True),
        ({"exit": {"exit_code": 3}, "status": {"phase": "stopping"}}, "was stopped (exit code 3)", False),
        (
            {"exit": {"exit_code": 143}, "status": {"phase": "stopping"}},
            "was stopped (exit code 143, SIGTERM)",
            False,
        ),
        ({"exit": {"exit_code": 3}, "status": {"phase": "training"}}, "failed: exit code 3", True),
        ({"exit": {"exit_code": 1}, "status": {"phase": "stopping"}}, "failed: exit code 1", True),
        ({"exit": {"start_error": {"message": "there is no program x"}}}, "not started: there is no program x", True),
        ({"exit": None, "claimed": True}, "ended, outcome unknown: nobody recorded how it ended", True),
        ({"exit": None, "training_alive": True}, "running", False),
    ],
)
def test_how_it_ended_in_words(changes: dict[str, Any], outcome: str, failed: bool) -> None:
    (found,) = report(run(**changes)).runs
    assert (found.outcome, found.failed) == (outcome, failed)


def test_a_run_is_named_by_a_unique_beginning_or_last() -> None:
    assert choose_run(IDS, "last") == IDS[2] and choose_run(IDS, "20261130") == IDS[2]
    assert choose_run(IDS, IDS[0]) == IDS[0] and choose_run([*IDS, "2026"], "2026") == "2026"
    for wanted, evidence in [("20261129", "a1ff"), ("1999", "ffff")]:
        with pytest.raises(UsageError) as error:
            choose_run(IDS, wanted)
        assert evidence in error.value.evidence
    with pytest.raises(UsageError, match="no runs yet"):
        choose_run([], "last")


def detail(raw: dict[str, Any], fingerprint: Any) -> RunDetail:
    record = parse_run_record({"run": raw})
    assert record is not None
    entry = parse_journal_entry({"id": "x", "op": "stop", "at": 1.0, "phase": "begin", "detail": {"kill": True}})
    assert entry is not None
    (summary,) = report(raw).runs
    return RunDetail("ct200", "ct200", record, summary, parse_fingerprint(fingerprint), fingerprint, (entry,))


def test_a_run_in_groups() -> None:
    made = {"id": "c" * 32 + "-2", "purpose": "train", "python": "/root/orch/envs/c/bin/python"}
    spec = {**run()["spec"], "python_environment": made}
    text = render_run(detail(run(spec=spec), FINGERPRINT))
    for part in (
        f"{IDS[0]} on ct200: ended well, after 1 h 2 min",
        "00:53:20 UTC by ann@laptop",
        "step-700, step-710 (incomplete)",
        "cccccccccccc-2 (train)",
        "aaaaaaaaaaaa, 31 files, 141 kB",
        "commit bbbbbbbbbbbb on main",
        "f4.py and 2 more",
        "2.11.0+cu128, built for CUDA 12.8",
        "torch 2.11.0+cu128, sglang 0.5",
        "2 x NVIDIA H200, 143771 MiB",
        "580.65.06",
        "16 of 2",
        "/t: 9 B, 2 files",
        "names only  HF_TOKEN",
        "not done within 3 s",
        "stop begun by somebody: kill yes",
    ):
        assert part in text, part


def test_a_mark_and_the_identity_are_shown() -> None:
    marked = run(mark={"verdict": "good", "note": "warm\x1b[2J", "by": "ann@laptop", "at": 1.0})
    fingerprint = {"schema": "orch.fingerprint/2", "identity": {"driver": {"version": "1"}}}
    text = render_run(detail(marked, fingerprint))
    assert "good by ann@laptop at 1970-01-01 00:00:01 UTC: warm\n" in text
    assert f"identity     {identity_hash(fingerprint)}" in text
    assert "ended well, marked good" in render_runs(report(marked))
    by_hand = run(spec={"created_at": 0.0, "launched_by": "adopted by ann@laptop", "adopted": {"pid": 1}})
    assert " UTC, adopted by ann@laptop\n" in render_run(detail(by_hand, fingerprint))
    assert "marked" not in render_runs(report(run(mark={"verdict": "fine"})))


def test_an_adopted_run_has_no_release_but_a_folder() -> None:
    spec = {"created_at": 0.0, "cwd": "/root/train", "release": "/root/train", "adopted": {"pid": 1}}
    by_hand = run(spec=spec, tree_hash=None)
    shown = detail(by_hand, {"identity": {"release": {"tree_hash": None, "git": None, "listing": {}}}})
    assert "none: adopted, it was started in /root/train\n" in render_run(shown)
    assert report(by_hand).runs[0].release is None and " adopted " in render_runs(report(by_hand))
    status = StatusReport(target="ct200", label="ct200", release=f"/root/orch/releases/{'c' * 64}", run=shown.run)
    assert release_text(status) == "cccccccccccc (the run's: none, it was started in /root/train)"


def test_json_of_one_run_holds_the_files_own_words() -> None:
    whole = json.loads(json.dumps(run_record(detail(run(), FINGERPRINT)), allow_nan=False))
    assert (whole["schema"], whole["fingerprint"]) == ("orch.run/1", FINGERPRINT)
    assert whole["run"]["state"]["exit"]["exit_code"] == 0 and whole["journal"][0]["op"] == "stop"


def test_text_from_afar_is_plain() -> None:
    evil = "\x1b[31mx\x1b]0;t\x07\n"
    made = {"id": evil, "purpose": evil, "python": evil}
    raw = run(
        spec={"argv": [evil], "launched_by": evil, "settings": {evil: evil}, "python_environment": made},
        checkpoints=[{"name": evil}],
    )
    found = {**FINGERPRINT, "variables": {"values": {"A": evil}, "names": [evil]}, "machine": {"kernel": evil}}
    assert "\x1b" not in render_run(detail({**raw, "id": evil, "tree_hash": evil}, found))
    assert "\x1b" not in render_runs(report(raw))


@settings(max_examples=40)
@given(
    st.lists(st.fixed_dictionaries({"id": st.text()}, optional={k: JSON for k in (*run(), *MORE) if k != "id"}) | JSON)
)
def test_any_answer_is_read(runs: list[Any]) -> None:
    found = RunsReport("t", "t", 1, parse_runs({"runs": runs, "now": 1.0}, b"xyz"))
    assert render_runs(found) and json.dumps(runs_record(found), allow_nan=False)
    for one in found.runs:
        kept = parse_summary(summary_line(one))
        assert kept is not None and kept.run_id == one.run_id and len(kept.notes) == len(one.notes)


def test_a_brief_result_leaves_out_what_only_explains() -> None:
    result = {"acceptance_length": 6.14, "definition": "word " * 30, "lossless": True}
    assert result_lines(result, brief=True) == ["acceptance length: 6.14", "lossless: yes"]
    assert len(result_lines(result)) == 3


def test_where_a_target_stands_in_a_run_s_place_its_option_is_told() -> None:
    with pytest.raises(UsageError) as of_a_target:
        choose_run(["20261129-141500-c3d4"], "ct200")
    assert of_a_target.value.way_out == "orch runs; to name a target: --target ct200"
    with pytest.raises(UsageError) as of_a_run:
        choose_run(["20261129-141500-c3d4"], "2025")
    assert of_a_run.value.way_out == "orch runs"
