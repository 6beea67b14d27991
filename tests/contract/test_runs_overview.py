"""Many runs in one answer: finished, live, foreign, half written."""

import asyncio
import collections
import json
import os
import shutil
import time
from dataclasses import replace

import pytest

from orchestrator.agent.far import cache_clear, journal, lease, leftovers, mark, observe, runs, stop
from orchestrator.agent.far import live as live_lock
from orchestrator.agent.far.errors import OpError
from orchestrator.agent.far.framing import encode_frame
from orchestrator.ledger.runs import parse_runs
from orchestrator.ledger.store import Index
from orchestrator.operations import ledger
from tests.run_place import GRACEFUL, ready
from tests.unit.facts import TARGET
from tests.waiting import eventually

PRINTS = "for step in (1, 2, 3): print(f'step {step}/9 loss 0.5 1250.0 tok/s')"


def overview(place, **params):
    answer, tails = place.call(runs.runs_overview, **params)
    assert encode_frame({"id": 1, "data": answer}, tails)
    return answer, parse_runs(json.loads(json.dumps(answer)), tails)


def make(place, run_id, **files):
    folder = place.base / "runs" / run_id
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_what_they_were_and_how_they_ended(place):
    # A run's end is recorded a moment before its lock is free.
    good = place.start(PRINTS, watch_s=20, spec={"launched_by": "ann@laptop"})
    eventually(lambda: not live_lock.is_held(str(place.base)), "the first run's lock is free")
    bad = place.start("raise SystemExit(7)", watch_s=20)
    eventually(lambda: not live_lock.is_held(str(place.base)), "the second run's lock is free")
    stopped = place.start(GRACEFUL)
    ready(place, stopped)
    place.call(stop.stop_run, run_id=None, wait_s=20)
    live = place.start(GRACEFUL)
    ready(place, live)
    answer, found = overview(place)
    assert [run.run_id for run in found] == [a["run_id"] for a in (good, bad, stopped, live)] and answer["total"] == 4
    assert [run.outcome for run in found] == [
        "ended well",
        "failed: exit code 7",
        "was stopped (exit code 3)",
        "running",
    ]
    assert [run.failed for run in found] == [False, True, False, False]
    first = found[0]
    assert (first.step, first.total_steps, first.throughput.rate.per_s) == (3, 9, 1250.0)
    assert first.launched_by == "ann@laptop" and first.ended_at >= first.started_at
    assert found[3].ended_at is None and found[3].duration_s >= 0 and found[3].step is None
    _, found = overview(place, last=1)
    assert [run.run_id for run in found] == [live["run_id"]]
    _, found = overview(place, only=good["run_id"])
    assert [run.run_id for run in found] == [good["run_id"]]


def test_half_written_and_foreign_folders_are_told_as_far_as_they_go(place):
    make(place, "20260101-000000-aaaa")
    make(place, "20260101-000001-aaaa", run_json="{", run_log="step 5 loss 1.0\n")
    make(place, "20260101-000002-aaaa", run_json={"run_id": "20260101-000002-aaaa"}, exit_json="[]")
    make(place, "20260101-000003-aaaa", run_json=[], status_json='{"step": 7}', fingerprint_json='{"release": 3}')
    make(
        place,
        "20260101-000004-aaaa",
        exit_json={"exit_code": 0},
        fingerprint_json={"release": {"git": {"commit": "c"}}},
    )
    (place.base / "runs" / "file").write_text("no folder")
    os.symlink("/", place.base / "runs" / "link")
    _, found = overview(place)
    assert [run.run_id[-6:-5] for run in found] == list("01234")
    assert [run.step for run in found] == [None, 5, None, 7, None]
    assert {run.outcome.partition(":")[0] for run in found[:4]} == {"not started"}
    assert (found[4].outcome, found[4].git_commit, found[4].started_at) == ("ended well", "c", None)


def test_records_of_any_shape_break_nothing(place):
    name = "20260101-000000-aaaa"
    odd = ["x", [1], {"pid": "y"}, {"pid": 1}, 7]
    for number, value in enumerate(odd):
        run_id = f"20260101-00000{number}-aaaa"
        spec = {"run_id": run_id, "environment": value, "created_at": value if number else "soon"}
        make(place, run_id, run_json=spec, wrapper_json={"run_id": run_id, "training": value, "wrapper": value})
    deep = place.base / "runs" / name
    (deep / "status.json").write_text("[" * 100_000)
    os.mkfifo(deep / "exit.json")
    (deep / "result.json").mkdir()
    assert len(overview(place)[1]) == len(odd)
    for run_id in (name, "20260101-000002-aaaa", None):
        assert place.call(observe.run_facts, run_id=run_id)[0]["run"]["training_alive"] is False
    assert place.call(leftovers.run_leftovers)["runs"] == []
    place.call(lease.lease_acquire, who="me", host="here", pid=1)
    live = place.base / "caches" / "live" / "inductor"
    live.mkdir(parents=True)
    (live / "kernel.so").write_text("x")
    cleared = place.call(cache_clear.cache_clear, folders={"inductor": str(live)}, who="me", why="test")
    place.call(lease.lease_release)
    assert cleared["files"] == 1


def test_a_run_that_vanishes_while_it_is_read_is_left_out(place, monkeypatch):
    make(place, "r1", exit_json={"exit_code": 0})
    ids = runs.records.run_ids
    monkeypatch.setattr(runs.records, "run_ids", lambda base: [*ids(base), "r2"])
    assert [run.run_id for run in overview(place)[1]] == ["r1"]


def test_a_run_is_marked_beside_its_record_and_in_the_journal(place):
    make(place, "r1", exit_json={"exit_code": 0})
    for verdict, note in (("bad", None), ("good", "warm")):
        place.call(mark.mark_run, run_id="r1", verdict=verdict, note=note, who="ann@laptop")
    (found,) = overview(place)[1]
    assert (found.mark.verdict, found.mark.note, found.mark.by) == ("good", "warm", "ann@laptop")
    lines = place.call(journal.journal_entries, run_id="r1")["entries"]
    assert [(line["phase"], line["detail"]["verdict"]) for line in lines] == [
        ("begin", "bad"),
        ("done", "bad"),
        ("begin", "good"),
        ("done", "good"),
    ]
    for wrong, kind in (
        ({"verdict": "fine"}, "bad_request"),
        ({"run_id": "r2"}, "missing"),
        ({"run_id": "../x"}, "bad_request"),
    ):
        with pytest.raises(OpError) as refused:
            place.call(mark.mark_run, **{"run_id": "r1", "verdict": "good", **wrong})
        assert refused.value.kind == kind
    assert sorted(os.listdir(place.base / "runs")) == ["r1"]


def test_none(place):
    assert overview(place)[1] == ()


def test_five_hundred_and_their_logs_fit_into_one_answer(place):
    now = time.time()
    for number in range(510):
        run_id = f"20260101-{number:06d}-aaaa"
        make(
            place,
            run_id,
            run_json={
                "run_id": run_id,
                "created_at": now,
                "argv": ["python", "x" * 200],
                "settings": {"a": "b" * 5000},
            },
            exit_json={"run_id": run_id, "exit_code": 0, "started_at": now, "ended_at": now + 1},
            run_log="x" * 5000 + f"\nstep {number} loss 1.0 1000.0 tok/s\n",
        )
    answer, found = overview(place)
    assert answer["total"] == 510 and len(found) == 500
    assert [run.step for run in found] == list(range(10, 510))
    shutil.rmtree(place.base / "runs")  # cleaning up looks for the processes of each


WHOLE = {
    "run.json": {"run_id": "r2", "created_at": 5.0, "argv": ["python"], "payload": "p", "launched_by": "ann@laptop"},
    "exit.json": {"run_id": "r2", "exit_code": 0, "started_at": 5.0, "ended_at": 9.0},
    "status.json": {"phase": "done", "step": 3, "total_steps": 3, "loss": 1.0, "tokens_per_s": 9.0},
    "result.json": {"acceptance_length": 3.5},
    "brief.json": {"tree_hash": "a", "git": {"commit": "c", "branch": "b", "dirty": 0}},
    "mark.json": {"verdict": "good", "note": "n", "by": "b", "at": 3.0},
    "cache.json": {"after": {"folders": {"TRITON_CACHE_DIR": {"path": "/t", "exists": True, "bytes": 9}}}},
}


class Session:
    """An agent's answers without an agent."""

    def __init__(self, place):
        self.place = place

    async def request(self, op, *, base, timeout_s, **params):
        assert (op, base) == ("runs_overview", str(self.place.base))
        return Reply(*overview_raw(self.place, **params))


Reply = collections.namedtuple("Reply", "header body")


def overview_raw(place, **params):
    answer, tails = place.call(runs.runs_overview, **params)
    return json.loads(json.dumps(answer)), tails


def listed(place, index):
    target = replace(TARGET, root=str(place.base.parent))
    known = index.recall(ledger.place_of(target))
    return asyncio.run(ledger.ask_listing(Session(place), target, index, known))


def test_a_record_cut_at_any_byte_loses_nothing_that_was_seen_and_hides_no_other_run(place, tmp_path):
    make(place, "r1", exit_json={"exit_code": 0})
    folder = make(place, "r2")
    for name, record in WHOLE.items():
        (folder / name).write_text(json.dumps(record))
    index = Index(tmp_path / "index")
    whole = listed(place, index).runs[1]
    assert whole.mark and whole.acceptance == 3.5 and whole.cache_after.bytes == 9 and not whole.broken
    for name in WHOLE:
        data = (folder / name).read_bytes()
        for cut in range(0, len(data), 3):
            (folder / name).write_bytes(data[:cut])
            first, second = listed(place, index).runs
            assert first.outcome == "ended well", f"{name} cut at {cut}"
            assert second.broken and replace(second, broken=()) == whole, f"{name} cut at {cut}"
        # Without an index: what is whole is told, and what is not is named.
        (found,) = [run for run in listed(place, Index(tmp_path / name)).runs if run.run_id == "r2"]
        assert found.broken == (str(folder / name),)
        (folder / name).write_bytes(data)
    assert listed(place, index).runs[1] == whole and index.notes == []
    index.path.unlink()
    assert listed(place, Index(index.path)).runs[1] == whole, "a controller that is lost is made anew from the target"
