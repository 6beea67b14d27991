"""The ranked diff, pure: equal is equal, both directions say the same, and unknown is never a difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.diagnosis.code import FileChange, changed_files, line_diff
from orchestrator.diagnosis.comparable import comparable_facts
from orchestrator.diagnosis.diff import ABSENT_IS_UNKNOWN, KINDS, Comparison, compare
from orchestrator.ledger.fingerprint import canonical_identity, identity_hash
from orchestrator.ledger.runs import Shape, good_runs, last_good, parse_runs
from orchestrator.probes.compile_cache import CacheFolder, CompileCache
from orchestrator.reports.diff import DiffReport, Side, diff_record, render_diff

A, B, C = "a" * 64, "b" * 64, "c" * 64
VALUES = st.dictionaries(st.sampled_from(["torch", "numpy", "x", "y", "memory"]), st.none() | st.sampled_from("12"))
SECTIONS = st.sampled_from([*[kind for kind in KINDS if kind != "cache"], "origins", "builds", "release", "git"])
FACTS = st.dictionaries(SECTIONS, st.none() | VALUES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.dictionaries(st.text(max_size=5), x, max_size=3) | st.lists(x, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *(
            "spec",
            "release",
            "python",
            "packages",
            "origins",
            "builds",
            "torch",
            "driver",
            "gpus",
            "variables",
            "limits",
        ),
        *(
            "container",
            "machine",
            "expected",
            "edited",
            "data",
            "model",
            "lock",
            "unknown",
            "host",
            "gpu_state",
            "cache",
        ),
    ]
)


def fingerprint(**identity: Any) -> dict[str, Any]:
    """As the agent writes it, with some of its sections."""
    whole: dict[str, Any] = {
        "release": {"tree_hash": A, "listing": {"train.py": A}, "git": {"commit": "1" * 40, "branch": "main"}},
        "edited": {},
        "packages": {"torch": "2.11.0+cu128", "requests": "2.0"},
        "origins": {},
        "builds": {"torch": "1", "requests": "2"},
        "torch": {"version": "2.11.0+cu128", "cuda": "12.8", "git_version": "f" * 40},
        "driver": {"version": "580.95.05"},
        "variables": {"values": {"NCCL_DEBUG": "INFO"}, "hashed": {"HF_TOKEN": "1" * 32}, "key": "k"},
        "spec": {"settings": {"steps": 3}, "argv": ["python", "train.py"], "targets": 5, "drafters": 3},
        "limits": {"memory_bytes": 1 << 36, "cpu_cores": "none", "cpus": [0, 1, 2], "shm_bytes": 5},
        "container": {"memory": "65536"},
    }
    return {"schema": "orch.fingerprint/2", "identity": {**whole, **identity}, "observed": {}, "unknown": {}}


def diff(a: Any, b: Any, runtime_a: Any = None, runtime_b: Any = None) -> Comparison:
    return compare(comparable_facts(a, runtime_a), comparable_facts(b, runtime_b), None, None)


def told(found: Comparison) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.kind, one.name, one.a, one.b) for one in found.differences]


@given(FACTS)
def test_what_is_equal_has_no_difference(facts: Any) -> None:
    assert compare(facts, facts, None, None).equal
    assert compare(facts, facts, None, None).observed == ()


@given(FACTS, FACTS)
def test_both_directions_say_the_same(a: Any, b: Any) -> None:
    there, back = compare(a, b, None, None), compare(b, a, None, None)
    for one, other in ((there.differences, back.differences), (there.observed, back.observed)):
        assert [(x.kind, x.name, x.part, x.a, x.b) for x in one] == [(x.kind, x.name, x.part, x.b, x.a) for x in other]
    assert [(x.kind, x.name, x.a, x.b) for x in there.not_observed] == [
        (x.kind, x.name, x.b, x.a) for x in back.not_observed
    ]


@given(FACTS, FACTS)
def test_what_is_unknown_on_a_side_is_no_difference_and_not_equal_either(a: Any, b: Any) -> None:
    found = compare(a, b, None, None)
    listed = {(one.kind, one.name) for one in found.not_observed}
    for section in {*a, *b}:
        here, there = a.get(section), b.get(section)
        if here is None or there is None:
            assert not [one for one in found.differences if one.part == section]
            assert [one for one in found.not_observed if one.a == (here is None) or one.b == (there is None)]
            continue
        for name in {*here, *there}:
            lacking = section in ABSENT_IS_UNKNOWN
            no_a, no_b = (side.get(name) is None and (name in side or lacking) for side in (here, there))
            if no_a or no_b:
                assert not [one for one in found.differences if (one.part, one.name) == (section, name)]
            if no_a != no_b:
                assert name in {listed_name for _, listed_name in listed}


@given(JSON | st.dictionaries(NAMES, JSON), st.dictionaries(NAMES, JSON), JSON)
def test_records_of_any_shape_are_compared(a: Any, identity: Any, runtime: Any) -> None:
    b = {"schema": "orch.fingerprint/2", "identity": identity, "observed": identity, "unknown": {}}
    shown = runtime if isinstance(runtime, dict) else None
    assert diff(b, b, shown, shown).equal
    found = diff(a, b, shown, None)
    changed_files(a, b)
    sides = (Side("last good", "r1", "ended well", None, None), Side("now", None, "", None, None))
    report = DiffReport("ct200", "ct200", *sides, found, (), None)
    assert render_diff(report).split("\n")[0].startswith("last good r1 (ended well) -> now: ")
    json.dumps(diff_record(report), allow_nan=False)


CHANGES = [
    ({"edited": {"train.py": B}}, ("edited", "train.py", None, B)),
    ({"edited": {"train.py": "missing"}}, ("edited", "train.py", None, "missing")),
    ({"packages": {"torch": "2.11.0+cu128", "requests": "2.1"}}, ("packages", "requests", "2.0", "2.1")),
    ({"packages": {"torch": "2.11.0+cu128"}}, ("packages", "requests", "2.0", None)),
    ({"packages": {"torch": "2.11.0+cu128", "requests": "2.0", "sglang": "1"}}, ("stack", "sglang", None, "1")),
    ({"origins": {"requests": "editable file:///x"}}, ("packages", "requests", None, "editable file:///x")),
    ({"builds": {"torch": "1", "requests": "3"}}, ("packages", "requests", "2", "3")),
    ({"driver": {"version": "570"}}, ("driver", "driver", "580.95.05", "570")),
    ({"driver": None}, ("driver", "driver", "580.95.05", "none")),
    (
        {"variables": {"values": {"NCCL_DEBUG": "INFO"}, "hashed": {"HF_TOKEN": "2" * 32}, "key": "k"}},
        ("secrets", "HF_TOKEN", "1" * 32, "2" * 32),
    ),
    ({"container": {"memory": "1024"}}, ("container", "memory", "65536", "1024")),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=lambda value: next(iter(value))[:40])
def test_one_change_is_one_difference(change: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert told(diff(fingerprint(), fingerprint(**change))) == [expected]


def test_what_only_says_another_difference_again_is_left_out() -> None:
    swapped = fingerprint(
        torch={"version": "2.11.0+cu130", "cuda": "12.8", "git_version": "f" * 40},
        packages={"torch": "2.11.0+cu130", "requests": "2.0"},
        builds={"torch": "9", "requests": "2"},
    )
    assert told(diff(fingerprint(), swapped, {"torch": "2.11.0+cu128"}, {"torch": "2.11.0+cu130"})) == [
        ("torch", "torch", "2.11.0+cu128 (CUDA 12.8, git ffffffffffff)", "2.11.0+cu130 (CUDA 12.8, git ffffffffffff)")
    ]
    smaller = fingerprint(
        container={"memory": "1024"}, limits={"memory_bytes": 1 << 30, "cpu_cores": "none", "cpus": [0, 1, 2]}
    )
    assert [one[:2] for one in told(diff(fingerprint(), smaller))] == [("limits", "memory limit")]


def test_secrets_hashed_with_another_key_are_not_compared() -> None:
    other = fingerprint(variables={"values": {"NCCL_DEBUG": "INFO"}, "hashed": {"HF_TOKEN": "9" * 32}, "key": "other"})
    found = diff(fingerprint(), other)
    assert found.equal and "secrets" in {one.kind for one in found.not_observed}


def test_an_older_record_is_compared_as_far_as_it_goes() -> None:
    old = {"schema": "orch.fingerprint/1", "packages": {"torch": "2.11.0+cu128"}, "driver": {"version": "1"}}
    found = diff(old, fingerprint())
    assert told(found) == [
        ("driver", "driver", "1", "580.95.05"),
        ("packages", "requests", None, "2.0"),
    ]
    assert {"edited", "container", "secrets"} <= {one.kind for one in found.not_observed if one.a and not one.b}


def test_the_likeliest_cause_comes_first_however_many_others_there_are() -> None:
    b = fingerprint(
        torch={"version": "2.11.0+cu130", "cuda": "13.0", "git_version": "f" * 40},
        packages={"torch": "2.11.0+cu130", **{f"p{number}": "1" for number in range(30)}},
        spec={"settings": {f"s{number}": 1 for number in range(9)}, "argv": [], "targets": 5, "drafters": 3},
    )
    report = DiffReport(
        "ct200",
        "ct200",
        Side("", "r1", "", None, None),
        Side("", "r2", "", None, None),
        diff(fingerprint(), b),
        (),
        None,
    )
    lines = render_diff(report).split("\n")
    assert lines[1].startswith("  torch    2.11.0+cu128 (CUDA 12.8") and "-> 2.11.0+cu130 (CUDA 13.0" in lines[1]
    assert "p0 1 added" in lines[2] and "and 27 more" in lines[2]
    assert "  p29 1 added" in lines


def test_what_is_another_in_every_run_is_no_difference() -> None:
    def runtime(number: int) -> dict[str, Any]:
        release, run = str(number) * 64, f"/root/orch/runs/2026112{number}-141500-a1b{number}"
        return {
            "replaced_functions": {
                "torch:x": f"/root/orch/releases/{release}/fx_guard.py:{number}",
                "torch:y": f"/root/orch/envs/{number}abc/lib/python3.12/site-packages/z.py:{number}",
            },
            "compiler_settings": {
                "torch._dynamo.config": {"hook": f"<function f at 0x7f{number}0>", "debug_dir_root": f"{run}/debug"}
            },
        }

    assert diff(fingerprint(), fingerprint(), runtime(1), runtime(2)).equal
    found = diff(fingerprint(), fingerprint(), runtime(1), {**runtime(2), "replaced_functions": {}})
    assert [(one.kind, one.name, one.a) for one in found.differences] == [
        ("replaced", "torch:x", "fx_guard.py"),
        ("replaced", "torch:y", "{environment}/lib/python3.12/site-packages/z.py"),
    ]


def folder(size: int | None, *, exists: bool = True, complete: bool = True) -> CompileCache:
    one = CacheFolder("TRITON", "/t", exists, size, 4 if exists else None, None, None, complete, 0)
    return CompileCache((one,))


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        (folder(353_000_000), folder(925_000), True),
        (folder(353_000_000), folder(None, exists=False), True),
        (folder(353_000_000), folder(900, complete=False), False),
        (folder(353_000_000), folder(300_000_000), False),
        (folder(925_000), folder(353_000_000), False),
        (folder(0), folder(0), False),
        (None, folder(0), False),
    ],
)
def test_a_cache_that_was_lost_is_a_difference_and_one_that_grew_is_none(before: Any, now: Any, lost: bool) -> None:
    found = compare({}, {}, before, now)
    assert [one.kind for one in found.differences] == (["cache"] if lost else [])
    assert not any(one.identity for one in found.differences)


def test_lines_come_from_the_contents_by_their_hashes() -> None:
    a, b = fingerprint(), fingerprint(edited={"train.py": B, "new.py": C})
    changes = changed_files(a, b)
    assert changes == (FileChange("new.py", None, C), FileChange("train.py", A, B))
    contents = {A: b"one\ntwo\n", B: b"one\n\x1b[31mthree\n", C: b"\0\1"}
    diffs = [line_diff(change, contents) for change in changes]
    assert diffs[0].why_not == "it is no text"
    assert diffs[1].lines[2:] == ("@@ -1,2 +1,2 @@", " one", "-two", "+three")
    assert (diffs[1].added, diffs[1].removed) == (1, 1)
    long = b"".join(b"x = %d\n\n" % n for n in range(150))
    appended = line_diff(changes[1], {A: long, B: long + b"# edited\n"})
    assert (appended.added, appended.removed) == (1, 0), "one line more is one line, in a long file too"
    assert "pruned" in (line_diff(changes[1], {A: b""}).why_not or "")
    assert "executed" in (line_diff(FileChange("x.sh", A, A + "+x"), contents).why_not or "")


def test_an_identity_has_one_spelling() -> None:
    one = fingerprint(packages={"b": "1", "a": "ü"})
    other = json.loads(json.dumps(dict(reversed(list(one.items())))))
    assert canonical_identity(one) == canonical_identity(other) and identity_hash(one) == identity_hash(other)
    assert identity_hash({"schema": "orch.fingerprint/1"}) is None


def overview(*runs: dict[str, Any]) -> Any:
    listed = []
    for number, run in enumerate(runs):
        about = {
            "id": f"r{number}",
            "folder": "/r",
            "spec": {"created_at": 1.0, **run.get("spec", {})},
            "exit": {"exit_code": run.get("code", 0), "started_at": 1.0, "ended_at": 1.0 + 60 * run.get("minutes", 1)},
        }
        status = {"phase": "stopping" if run.get("code") == 3 else "done", "step": 3, "tokens_per_s": run.get("rate")}
        status["loss"] = run.get("loss")
        kept = [{"id": name, "severity": "warning"} for name in run.get("findings", ())]
        folder = {"path": "/c", "exists": True, "bytes": run.get("cache"), "files": 1, "complete": True}
        about["cache_before"] = {"folders": {"TRITON_CACHE_DIR": folder}} if "cache" in run else None
        about |= {
            "remarks": {"findings": kept, "looked": run.get("looked")},
            "result": {"acceptance_length": run.get("acceptance")},
        }
        listed.append({**about, "status": status, "mark": {"verdict": run["mark"]} if "mark" in run else None})
    return parse_runs({"runs": listed}, b"")


@pytest.mark.parametrize(
    ("runs", "before", "least", "expected"),
    [
        (({"rate": 21500.0}, {"rate": 12800.0}, {"rate": 4600.0}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 20000.0}, {"rate": 12800.0}), "r2", None, "r1"),
        (({"rate": 21500.0}, {"rate": 20000.0}, {"rate": 12800.0}), "r1", None, "r0"),
        (({"rate": 12800.0, "mark": "good"}, {"rate": 21500.0}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 21600.0, "mark": "bad"}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 21500.0, "code": 1}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 19900.0}), None, 20000.0, "r0"),
        (({"rate": 40000.0}, {"rate": 20500.0}), None, 20000.0, "r1"),
        (({}, {}), "r1", None, "r0"),
        (({"rate": 21500.0}, {"rate": 21600.0, "code": 3, "minutes": 3}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 21600.0, "code": 3, "minutes": 300}), None, None, "r1"),
        (({"rate": 21500.0, "code": 3},), None, None, "r0"),
        (({"code": 1},), None, None, None),
        (({"rate": 21500.0}, {"rate": 21600.0, "loss": float("nan")}), None, None, "r0"),
        (({"rate": 21500.0, "loss": 2.1}, {"rate": 21600.0, "loss": float("inf")}), None, None, "r0"),
        (({"rate": 21500.0}, {"rate": 21600.0, "loss": 2.1}), None, None, "r1"),
        (({"rate": 21500.0, "loss": float("nan"), "mark": "good"},), None, None, "r0"),
        (({"rate": 1.0},), "r0", None, None),
    ],
)
def test_which_run_was_the_last_good_one(runs: Any, before: Any, least: Any, expected: str | None) -> None:
    found = last_good(overview(*runs), Shape(None), before=before, least_per_s=least)
    assert (found.run_id if found else None) == expected


def shaped(rate: float, payload: str | None = "dflash", targets: int | None = 5, **more: Any) -> dict[str, Any]:
    return {"rate": rate, "spec": {"payload": payload, "targets": targets, "drafters": 3}, **more}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((shaped(20000.0), shaped(40000.0, targets=13)), "r0"),
        ((shaped(20000.0), shaped(40000.0, payload="other")), "r0"),
        ((shaped(20000.0), shaped(900.0, targets=1, mark="good")), "r0"),
        ((shaped(900.0, targets=1), shaped(900.0, payload="other", mark="good")), None),
        ((shaped(20000.0, payload=None, targets=None),), "r0"),
        ((shaped(20000.0), shaped(19000.0, payload=None, targets=None)), "r1"),
    ],
)
def test_a_run_of_another_shape_is_no_comparison(runs: Any, expected: str | None) -> None:
    found = last_good(overview(*runs), Shape("dflash", 5, 3))
    assert (found.run_id if found else None) == expected


@pytest.mark.parametrize("like", [Shape("dflash", 5, 3), Shape(None)])
def test_a_warm_up_is_no_run_to_compare_with(like: Shape) -> None:
    warmup = shaped(90000.0)
    warmup["spec"]["warmup"] = True
    runs = overview(shaped(20000.0), warmup)
    assert [run.outcome for run in runs] == ["ended well", "warm-up ended well"]
    found = last_good(runs, like)
    assert found is not None and found.run_id == "r0"


@pytest.mark.parametrize("printed", ["step {n}/9 {rate:.1f} it/s\n", "step {n}/9 {rate:.1f} samples/s\n"])
def test_a_training_that_counts_no_tokens_is_judged_by_what_it_counts(printed: str) -> None:
    tails = [printed.format(n=number, rate=rate).encode() for number, rate in enumerate((20.0, 4.0, 18.0, 5.0))]
    runs = [
        {"id": f"r{number}", "exit": {"exit_code": 0}, "log": {"size": len(tail), "tail_bytes": len(tail)}}
        for number, tail in enumerate(tails)
    ]
    found = good_runs(parse_runs({"runs": runs}, b"".join(tails)), Shape(None))
    assert [one.run_id for one in found] == ["r2", "r0"]


def test_ten_thousand_files_are_a_page_and_take_a_moment() -> None:
    sections: dict[str, Any] = {"release": {"tree_hash": A, "listing": {}}, "edited": {}}
    many = {**sections, "edited": {f"d/{number}.py": C for number in range(10_000)}}
    before, after = ({"schema": "orch.fingerprint/2", "identity": one} for one in (sections, many))
    began = time.process_time()
    comparison = compare(comparable_facts(before, None), comparable_facts(after, None), None, None)
    files = tuple(line_diff(change, {}) for change in changed_files(before, after))
    side = Side("latest", "r", "", None, None)
    report = DiffReport("t", "t", side, side, comparison, files, None)
    lines = render_diff(report).splitlines()
    assert time.process_time() - began < 15, "it was 50 s when each file was looked for among all"
    assert len(lines) < 500 and "  ... 9900 more: --json has all" in lines
    assert len(diff_record(report)["files"]) == 10_000


def text(a: Any, b: Any) -> str:
    """Of two runs between which nothing else differs."""
    sides = (Side("", run.run_id, run.outcome, run, None) for run in (a, b))
    report = DiffReport("t", "t", *sides, compare({}, {}, None, None), (), None)
    assert diff_record(report) == json.loads(json.dumps(diff_record(report)))
    return render_diff(report)


def test_what_came_of_both_runs_is_told_where_it_is_not_the_same() -> None:
    fast, slow = overview(
        {"rate": 21500.0, "looked": True},
        {"rate": 4600.0, "findings": ["eager-fallback"], "cache": 925_000, "acceptance": 3.5, "looked": True},
    )
    told = text(fast, slow)
    for part in (
        "  speed: 21.5 Ktok/s -> 4.6 Ktok/s",
        "  found: nothing -> eager-fallback",
        "  compile cache before: - -> 925 kB",
        "  acceptance: - -> 3.50",
    ):
        assert part in told.splitlines()
    assert "no difference" in text(slow, slow) and len(text(slow, slow).splitlines()) == 3, "with itself: nothing"


def test_of_a_run_that_no_doctor_looked_at_it_is_not_said_that_it_found_nothing() -> None:
    unseen, well, slow = overview({}, {"looked": True}, {"findings": ["eager-fallback"], "looked": True})
    assert "  found: no look recorded -> eager-fallback" in text(unseen, slow).splitlines()
    assert "  found: eager-fallback -> nothing" in text(slow, well).splitlines()
    assert "found:" not in text(unseen, well) + text(well, unseen) + text(unseen, unseen), "no difference of the runs"


BOTH = """
import json
from orchestrator.diagnosis.code import changed_files, line_diff
from orchestrator.diagnosis.comparable import cache_of, comparable_facts
from orchestrator.diagnosis.diff import compare
from orchestrator.reports.diff import DiffReport, Side, diff_record, render_diff

def record(version, more):
    packages = {f"p{n}": f"1.{n}" for n in range(1000)} | {f"q{n}": version for n in range(30)} | more
    listing = {f"f{n}.py": "a" * 64 if n % 7 else version.rjust(64, "b") for n in range(300)}
    folder = {"path": "/c", "exists": True, "bytes": 5, "files": 1, "complete": True}
    identity = {"packages": packages, "release": {"tree_hash": version, "listing": listing}, "edited": {}}
    observed = {"cache": {"folders": {"TRITON_CACHE_DIR": folder}}}
    return {"schema": "orch.fingerprint/2", "identity": identity, "observed": observed}

def told(a, b):
    found = compare(comparable_facts(a, None), comparable_facts(b, None), cache_of(a), cache_of(b))
    files = tuple(line_diff(change, {}) for change in changed_files(a, b))
    report = DiffReport("t", "t", Side("", "r", "", None, None), Side("", "s", "", None, None), found, files, None)
    return render_diff(report) + json.dumps(diff_record(report))

a, b = record("1", {"gone": "1"}), record("2", {"new": "1"})
print(told(a, a)); print(told(a, b))
"""


def test_of_a_run_with_itself_there_is_no_difference_and_the_same_is_said_each_time() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", BOTH], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.decode()
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] and "no difference in what was observed of both" in said[0].splitlines()[0]
    assert '"equal": true, "differences": []' in said[0] and "differences\n" in said[0] and "new 1 added" in said[0]
