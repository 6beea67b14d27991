"""Which snapshot a seed is made from, and what is said when there is none."""

import pytest

from orchestrator.errors import UsageError
from orchestrator.ledger.runs import Shape, good_runs, parse_runs
from orchestrator.ledger.snapshots import choose_dropped, choose_seed, parse_snapshots, to_drop


def snapshot(name, *runs, at=1.0):
    folders = {"inductor": {"path": "/x", "bytes": 5, "files": 1}}
    return {"name": name, "manifest": {"schema": 1, "made_at": at, "runs": list(runs), "folders": folders}}


def run(run_id, code, at=1.0, **more):
    ended = None if code is None else {"exit_code": code}
    return {"id": run_id, "spec": {"created_at": at}, "exit": ended, **more}


def choose(wanted, snapshots, runs=(), seeded=None):
    found = parse_snapshots({"snapshots": snapshots, "unfinished": [], "seeded": seeded})
    return choose_seed(wanted, found, good_runs(parse_runs({"runs": list(runs)}, b""), Shape(None)))


def test_last_good_goes_with_the_newest_run_that_ended_well():
    kept = [snapshot("s1", "r1"), snapshot("s2", "r2", "r3"), snapshot("s3", "r4")]
    seed = choose("last-good", kept, [run("r1", 0), run("r2", 0), run("r3", 1), run("r4", None)])
    assert seed.name == "s2" and "r2" in seed.why


def test_last_good_may_be_what_the_live_cache_was_made_from():
    kept = [snapshot("s1", "r1")]
    seed = choose("last-good", kept, [run("r1", 1), run("r2", 0, at=9.0)], {"snapshot": "s1", "at": 5.0})
    assert seed.name == "s1" and "r2" in seed.why
    with pytest.raises(UsageError):  # it ran before the cache was made from it
        choose("last-good", kept, [run("r2", 0, at=4.0)], {"snapshot": "s1", "at": 5.0})


def test_an_older_good_run_serves_when_the_newest_has_no_snapshot():
    seed = choose("last-good", [snapshot("s1", "r1")], [run("r1", 0), run("r2", 0)])
    assert seed.name == "s1" and "that has a snapshot" in seed.why


def test_it_is_the_same_run_that_a_diff_compares_with():
    kept = [snapshot("s1", "r1"), snapshot("s2", "r2"), snapshot("s3", "r3")]
    slow = {"status": {"step": 3, "tokens_per_s": 4600.0}}
    fast = {"status": {"step": 3, "tokens_per_s": 21500.0}}
    runs = [run("r1", 0, **fast), run("r2", 0, **slow), run("r3", 0, **fast, mark={"verdict": "bad"})]
    assert choose("last-good", kept, runs).name == "s1", "it ended well, and slow or marked bad"
    marked = [*runs[:1], run("r2", 1, **slow, mark={"verdict": "good"}), *runs[2:]]
    assert choose("last-good", kept, marked).name == "s2"


@pytest.mark.parametrize("snapshots", [[], [snapshot("s1", "r1")], [{"name": "s2", "manifest": None}]])
def test_without_one_it_says_so(snapshots):
    with pytest.raises(UsageError, match="no last good snapshot"):
        choose("last-good", snapshots, [run("r1", 1), run("r9", 0)])


def test_a_name_may_be_cut_but_not_ambiguous():
    kept = [snapshot("20261129-1"), snapshot("20261129-2"), snapshot("20261129-22")]
    assert choose("20261129-1", kept).name == "20261129-1"
    assert choose("20261129-2", kept).name == "20261129-2"
    for wanted in ("20261129", "x"):
        with pytest.raises(UsageError, match="nothing was done"):
            choose(wanted, kept)
    with pytest.raises(UsageError, match="cannot be read"):
        choose("bad", [{"name": "bad", "manifest": {"broken": "/x"}}])


def dropped(spared=(), sizes=(5, 5, 5, 5), **limits):
    kept = [snapshot(f"s{number}", at=float(number)) for number in range(len(sizes))]
    for row, size in zip(kept, sizes, strict=True):
        row["manifest"]["folders"]["inductor"]["bytes"] = size
    found = parse_snapshots({"snapshots": kept[::-1], "unfinished": [], "seeded": None})
    return to_drop(found, frozenset(spared), **{"keep": None, "max_bytes": None, **limits})


def test_what_is_dropped_is_the_oldest_beyond_count_and_bytes():
    assert dropped() == ()
    assert dropped(keep=2) == ("s0", "s1") and dropped(keep=0) == ("s0", "s1", "s2", "s3")
    assert dropped(max_bytes=10) == ("s0", "s1") and dropped(max_bytes=9) == ("s0", "s1", "s2")
    assert dropped(keep=3, max_bytes=10) == ("s0", "s1")
    assert dropped(sizes=(5, 5, 90, 5), max_bytes=20) == ("s2",)


def test_what_is_spared_stays_and_counts_first():
    assert dropped(spared=["s0"], keep=2) == ("s1", "s2")
    assert dropped(spared=["s0", "s1"], keep=1) == ("s2", "s3")
    assert dropped(spared=["s0"], max_bytes=10) == ("s1", "s2")
    assert dropped(sizes=(None, 5, 5, 5), max_bytes=5) == ("s1", "s2")


def test_the_first_snapshot_after_the_good_run_is_meant_whatever_its_name():
    kept = [snapshot("after", "r1", "r2", at=9.0), snapshot("zero", "r1", at=3.0)]
    assert choose("last-good", kept, [run("r1", 0), run("r2", 1)]).name == "zero"


def test_what_is_dropped_is_named_whole():
    """A script that runs twice would else take the next one that begins so."""
    found = parse_snapshots({"snapshots": [snapshot("nightly-2"), {"name": "cut", "manifest": {"broken": "/x"}}]})
    assert choose_dropped("nightly-2", found) == "nightly-2" and choose_dropped("cut", found) == "cut"
    for name in ("nightly", "", "last-good"):
        with pytest.raises(UsageError, match="nothing was dropped"):
            choose_dropped(name, found)
