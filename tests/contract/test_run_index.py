"""The index of runs on the controller: whatever is done to its file, nothing recorded is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger.index_rows import parse_summary, summary_line
from orchestrator.ledger.run_query import RunQuery, matching, parse_since
from orchestrator.ledger.runs import RunSummary, parse_runs
from orchestrator.ledger.store import Index, Recalled
from orchestrator.operations.ledger import gone_of
from tests.conftest import GUARD
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[2]
PLACE = "root@10.1.2.6:22/pct:200/root/orch"
STATUS = {"phase": "done", "step": 7, "total_steps": 9, "compiled": {"cache_hits": 3}}
REMARKS = {
    "notes": [{"text": "warm: ü", "by": "ann@laptop", "at": 2.0}],
    "findings": [{"id": "slow", "severity": "warning", "title": "t", "evidence": ["e"], "first_at": 1.0}],
    "looked": True,
}
CACHE = {"folders": {"TRITON_CACHE_DIR": {"path": "/t", "exists": True, "bytes": 9, "files": 2, "complete": True}}}
LOG = b"step 7/9 loss 0.5 1250.0 tok/s\n" * 4


def summary(run_id: str, **changes: Any) -> RunSummary:
    about = {
        "id": run_id,
        "spec": {"created_at": 1.0, "launched_by": "ann@laptop", "argv": ["python"], "payload": "p", "targets": 5},
        "exit": {"exit_code": 0, "started_at": 1.0, "ended_at": 5.0},
        "status": STATUS,
        "result": {"acceptance_length": 3.5},
        "mark": {"verdict": "good", "note": "n", "by": "b", "at": 3.0},
        "git": {"commit": "c", "branch": "b", "dirty": 2},
        "remarks": REMARKS,
        "cache_before": CACHE,
        "samples": {"tokens_per_s": [1.0, 2.0]},
        "log": {"size": len(LOG), "tail_bytes": len(LOG)},
        **changes,
    }
    return parse_runs({"runs": [about], "now": 9.0}, LOG)[0]


def ids(count: int) -> list[str]:
    return [f"20261129-{number:06d}-aaaa" for number in range(count)]


def filled(path: Path, count: int) -> Index:
    index = Index(path, heal=True)
    index.keep(PLACE, 10.0, [(summary(run_id), "s") for run_id in ids(count)], ids(count))
    assert index.notes == []
    return index


def test_a_summary_comes_back_as_it_was() -> None:
    for run in (summary("r1"), summary("r2", status=None, mark=None, exit=None, log=None, remarks=None), summary("r3")):
        assert parse_summary(summary_line(run)) == run
    for line in ("", "[]", "{}", '{"run_id": "r", "phase": "x"}', "[" * 100_000, '{"run_id": 3, "phase": "ended"}'):
        assert parse_summary(line) is None


def test_it_is_its_owners_alone_and_nothing_of_the_process_is_changed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(mask: int) -> int:
        raise AssertionError("a mask is that of all threads: two that set it at once lose it")

    monkeypatch.setattr(os, "umask", changed)
    path = tmp_path / "new" / "runs"
    filled(path, 2)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_gone_from_the_target_stays_in_the_index(tmp_path: Path) -> None:
    index = filled(tmp_path / "runs", 5)
    kept = ids(5)
    index.keep(PLACE, 11.0, [], [kept[1], kept[2], kept[4]])
    found = index.recall(PLACE).runs
    # The first is older than all that was asked for: nothing is known of it.
    assert [found[run_id].gone for run_id in kept] == [False, False, False, True, False]
    index.keep(PLACE, 12.0, [(summary(kept[3]), "s2")], kept)
    assert not index.recall(PLACE).runs[kept[3]].gone
    assert index.recall("elsewhere") == Recalled({}, None)


def test_the_oldest_runs_are_gone_where_the_target_told_of_all_that_it_has(tmp_path: Path) -> None:
    index = filled(tmp_path / "runs", 4)
    kept = ids(4)
    known = index.recall(PLACE)
    assert [run.run_id for run in gone_of(known, kept[2:], whole=True)] == kept[:2], "a clean-up takes these first"
    assert gone_of(known, kept[2:], whole=False) == ()
    index.keep(PLACE, 11.0, [], kept[2:], whole=True)
    assert [index.recall(PLACE).runs[run_id].gone for run_id in kept] == [True, True, False, False]
    assert [*index.recall(PLACE).stamps] == kept[2:], "one that comes back is asked for, and then no longer gone"


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    index = Index(tmp_path / "runs")
    index.keep(PLACE, 20.0, [(summary("r1", status={"step": 20}), "new")], ["r1"])
    index.keep(PLACE, 10.0, [(summary("r1", status={"step": 10}), "old")], ["r1"])
    assert index.recall(PLACE).runs["r1"].stamp == "new"
    index.keep(PLACE, 10.0, [], ["r0", "r2"])  # it did not know r1 yet
    assert not index.recall(PLACE).runs["r1"].gone


def cuts(data: bytes) -> list[int]:
    """The header, each border of a page, the end, and every 397th byte."""
    borders = [at + more for at in range(0, len(data), 4096) for more in (-1, 0, 1)]
    found = {*range(0, 110, 9), 15, 16, 99, 100, 101, *range(len(data) - 3, len(data)), *borders}
    return sorted(at for at in {*found, *range(0, len(data), 397)} if 0 <= at < len(data))


def test_an_index_cut_at_any_byte_is_moved_aside_and_made_anew(tmp_path: Path) -> None:
    filled(tmp_path / "runs", 8)
    data = (tmp_path / "runs").read_bytes()
    runs = [(summary(run_id), "s") for run_id in ids(8)]
    assert len(data) > 5 * 4096
    for cut in cuts(data):
        folder = tmp_path / str(cut)
        folder.mkdir()
        path = folder / "runs"
        path.write_bytes(data[:cut])
        index = Index(path, heal=True)
        known = index.recall(PLACE).runs
        index.check()
        aside = [found for found in folder.iterdir() if ".damaged-" in found.name]
        # Nothing is made up: what it still knows is as it was written, and the file is kept.
        assert all(known[run.run_id].summary == run for run, _ in runs if run.run_id in known), f"cut at {cut}"
        if aside:
            assert not index.recall(PLACE).runs and [found.read_bytes() for found in aside] == [data[:cut]]
            assert "was damaged" in index.notes[0] and "orch runs --sync" in index.notes[0]
        else:  # less than SQLite's own head, which it takes for an empty file; or the last page, of one row's text
            assert (cut < 100 and not known) or (cut > len(data) - 4096 and len(known) >= 7), f"cut at {cut}"
        index.keep(PLACE, 11.0, runs, ids(8))
        assert len(index.recall(PLACE).runs) == 8, f"cut at {cut}"


def test_without_leave_to_mend_it_a_damaged_index_is_left_alone_and_done_without(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    filled(path, 3)
    path.write_bytes(path.read_bytes()[:5000])
    before = path.read_bytes()
    index = Index(path)
    assert index.recall(PLACE) == Recalled({}, None) and "done without" in index.notes[0]
    index.keep(PLACE, 11.0, [(summary("r1"), "s")], ["r1"])
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_row_that_is_not_as_it_was_written_is_asked_for_anew(tmp_path: Path) -> None:
    index = filled(tmp_path / "runs", 3)
    with closing(sqlite3.connect(index.path)) as raw, raw:
        raw.execute("UPDATE runs SET summary = replace(summary, '1250.0', '9250.0') WHERE run_id = ?", (ids(3)[1],))
        raw.execute("UPDATE runs SET reader = 0 WHERE run_id = ?", (ids(3)[2],))
    assert list(index.recall(PLACE).stamps) == [ids(3)[0]]
    assert list(index.recall(PLACE).runs) == [ids(3)[0], ids(3)[2]]


def test_what_another_made_or_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    with closing(sqlite3.connect(newer)) as raw:
        raw.execute("PRAGMA user_version = 99")
    blocked = tmp_path / "file"
    blocked.write_text("")
    for path in (newer, blocked / "runs", Path("/proc/nowhere/runs")):
        index = Index(path, heal=True)
        index.keep(PLACE, 1.0, [(summary("r1"), "s")], ["r1"])
        assert index.recall(PLACE) == Recalled({}, None) and len(index.notes) == 2
    with closing(sqlite3.connect(newer)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (99,)


WRITER = """
import sys
from pathlib import Path
from tests.contract.test_run_index import PLACE, summary
from orchestrator.ledger.store import Index
index, name, count = Index(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    run_id = f"{name}-{number:04d}"
    index.keep(PLACE + name, 1.0 + number, [(summary(run_id), "s")], [run_id])
    index.keep(PLACE, 1.0 + number, [(summary("shared"), "s")], ["shared"])
    print(number, flush=True)
sys.exit(1 if index.notes else 0)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((GUARD, str(PROJECT)))}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def go(*writers: subprocess.Popen[str]) -> None:
    for one in writers:
        assert one.stdout and one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin
        one.stdin.write("\n")
        one.stdin.flush()


def test_two_controllers_at_once_lose_nothing_and_one_that_is_killed_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs"
    writers = [writer(path, name, 20) for name in ("ann", "ben")]
    killed = writer(path, "eve", 100_000)
    go(*writers, killed)
    assert killed.stdout and killed.stdout.readline() and killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    for one in writers:
        out, _ = one.communicate(timeout=60)
        assert one.returncode == 0 and out.splitlines()[-1] == "19"
    told = [int(line) for line in killed.communicate(timeout=20)[0].splitlines()]
    index = Index(path, heal=True)
    index.check()
    assert [len(index.recall(PLACE + name).runs) for name in ("ann", "ben")] == [20, 20] and index.notes == []
    eve = index.recall(PLACE + "eve").runs
    assert len(eve) >= max(told, default=1) + 1 and list(index.recall(PLACE).runs) == ["shared"]


def test_of_many_that_find_it_damaged_one_moves_it_aside(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    filled(path, 25)
    path.write_bytes(path.read_bytes()[:9000])
    found: list[Index] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        index = Index(path, heal=True)
        start.wait(10)
        index.recall(PLACE)
        index.keep(PLACE, 1.0, [(summary(f"r{number}"), "s")], [f"r{number}"])
        index.keep(f"own {number}", 1.0, [(summary(f"r{number}"), "s")], [f"r{number}"])
        found.append(index)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    eventually(lambda: len(found) == 8, "all have come to an end")
    assert len([one for one in tmp_path.iterdir() if ".damaged-" in one.name]) == 1
    assert sum("was damaged" in note for index in found for note in index.notes) == 1
    assert all(len(Index(path).recall(f"own {number}").runs) == 1 for number in range(8))


def test_runs_are_filtered_and_sorted() -> None:
    runs = [
        summary("a", mark=None, spec={"created_at": 1.0, "payload": "p"}),
        summary("b", mark=None, exit={"exit_code": 1, "started_at": 50.0}, spec={"payload": "q"}),
        summary("c", mark={"verdict": "bad"}, exit={"exit_code": 3, "started_at": 90.0}, stop={"at": 1}, result={}),
        summary("d", exit=None, recorded={"pid": 1}, claimed=True, mark=None),
        summary("e", exit=None, training_alive=True, mark=None, samples=None, status={"step": 1, "tokens_per_s": 9e9}),
    ]

    def chosen(**query: Any) -> str:
        return "".join(run.run_id for run in matching(runs, RunQuery(**query)))

    assert chosen() == "edcba" and chosen(payload="q") == "b" and chosen(since_s=50.0) == "cb"
    assert [chosen(outcomes=(name,)) for name in ("running", "well", "stopped", "failed", "unknown")] == list("eacbd")
    assert chosen(outcomes=("well", "failed")) == "ba" and chosen(good=True) == "a"
    assert chosen(sort="rate")[0] == "e" and chosen(sort="step")[-1] == "e" and chosen(sort="acceptance")[-1] == "c"
    assert parse_since("2d", 1e6) == 1e6 - 172_800 and parse_since("2026-11-20", 0.0) == 1_795_132_800.0
    with pytest.raises(Exception, match="an age or a date"):
        parse_since("soon", 0.0)
