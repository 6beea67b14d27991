"""What `orch cache` says. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.snapshots import parse_snapshots
from orchestrator.probes.cache_census import Census, parse_census
from orchestrator.reports.cache import (
    CacheReport,
    LastGood,
    SnapshotsReport,
    cache_record,
    headline,
    render_cache,
    render_snapshots,
)

GOOD = LastGood("r1", "in the cache that goes with it", 353_000_000, "s1")
NONE = LastGood(None, "no run has ended well yet", None, None)


def folder(path: str, size: int | None, files: int | None) -> dict[str, object]:
    about = {"path": path, "exists": size is not None, "bytes": size, "files": files, "complete": True}
    return {**about, "unreadable": 0, "oldest_mtime": 1000.0, "newest_mtime": 4600.0}


ANSWER: dict[str, object] = {
    "folders": {"inductor": folder("/tmp/torchinductor_root", 925_000, 30), "triton": folder("/tmp/t", None, None)},
    "kinds": {
        "fxgraph": {"entries": 6, "files": 6, "bytes": 925_000},
        "code": {"entries": None, "files": 24, "bytes": 0},
    },
    "devices": {"graphs": {"cuda:5": 6}, "unknown": 0, "complete": True},
    "users": {"live_run": None, "live_uses": None, "processes": []},
    "launch": None,
    "seeded": None,
    "against": {},
    "counted_at": 8200.0,
}


def census(**changes: object) -> Census:
    return parse_census({**ANSWER, **changes})


def report(found: Census, good: LastGood = GOOD) -> CacheReport:
    return CacheReport("ct200", "ct200 (container 200 on gpu-box)", found, good)


def test_a_cut_seeding_is_told() -> None:
    text = render_cache(report(census(seeding={"snapshot": "nightly", "targets": {}})))
    assert "a seeding from nightly was cut short: the next launch or cache command finishes it" in text
    assert "cut short" not in render_cache(report(census(seeding=None)))


def test_a_cache_that_one_kernel_warmed_is_nothing_beside_the_last_good_one() -> None:
    text = render_cache(report(census()))
    assert "925 kB, 6 compiled graphs, 30 files: 0.3 % of the last good run's 353 MB" in text
    assert "graphs by device: cuda:5 6; they serve no other device index" in text
    assert "last good run r1: 353 MB" in text and "used now by: nobody that is known" in text
    assert "2 h 0 min ago to 1 h 0 min ago" in text


def test_without_a_good_run_there_is_no_part_of_it() -> None:
    text = render_cache(report(census(), NONE))
    assert "%" not in text and "no run has ended well yet" in text
    assert cache_record(report(census(), NONE))["of_last_good"] is None


@pytest.mark.parametrize(("part", "said"), [(925, "0.3 %"), (35_300, "10 %"), (353_000, "100 %"), (706_000, "200 %")])
def test_parts_are_said_with_what_matters(part: int, said: str) -> None:
    kinds = {"fxgraph": {"entries": 1, "files": 1, "bytes": part * 1000}}
    assert f": {said} of" in headline(report(census(kinds=kinds)))


def test_growth_since_the_launch_is_of_the_same_folders() -> None:
    stats = {"path": "/tmp/torchinductor_root", "exists": True, "bytes": 900_000, "files": 20, "complete": True}
    launch = {"run_id": "r7", "cache": {"folders": {"TORCHINDUCTOR_CACHE_DIR": stats}, "counted_at": 1.0}}
    only = {"inductor": folder("/tmp/torchinductor_root", 925_000, 30)}
    assert "since run r7 was launched: +25.0 kB, +10 files" in render_cache(report(census(launch=launch, folders=only)))
    other = {"inductor": folder("/elsewhere", 925_000, 30)}
    assert "with other folders" in render_cache(report(census(launch=launch, folders=other)))


def test_beside_the_snapshot_that_it_was_made_from() -> None:
    row = {"kinds": {"fxgraph": {"entries": 9, "files": 9, "bytes": 1}}, "bytes": 5000, "files": 40}
    row |= {"same": 30, "changed": 4, "gone": 6, "new": 2}
    found = census(
        against={"s1": row, "s2": {"error": "there is no snapshot s2"}}, seeded={"snapshot": "s1", "at": 8140.0}
    )
    text = render_cache(report(found))
    assert "beside snapshot s1, from which it was made 1 min 0 s ago: 30 of its 40 files (5.0 kB, 9 graphs)" in text
    assert "6 gone, 4 changed, 2 new" in text and "beside snapshot s2: there is no snapshot s2" in text


def test_users_are_named_and_a_run_with_other_folders_is_said_to_be_one() -> None:
    users = {"live_run": "r9", "live_uses": False, "processes": [{"pid": 41, "argv": ["python", "warm.py"]}]}
    assert "run r9 (which uses other folders); pid 41 python warm.py" in render_cache(report(census(users=users)))


def test_a_count_that_was_stopped_says_at_least() -> None:
    found = census()
    cut = replace(found, folders=(replace(found.folders[0], complete=False),))
    assert headline(report(cut)).startswith("at least 925 kB")


def test_snapshots_are_complete_damaged_or_incomplete() -> None:
    folders = {"inductor": {"path": "/x", "bytes": 5000, "files": 3}, "triton": {"path": "/y", "bytes": 1, "files": 1}}
    manifest = {
        "schema": 1,
        "made_at": 0.0,
        "who": "me@pc",
        "runs": ["r1", "r2", "r3"],
        "folders": folders,
        "odd": ["x/y"],
    }
    answer = {
        "snapshots": [{"name": "good", "manifest": manifest}, {"name": "torn", "manifest": {"broken": "x"}}],
        "unfinished": ["cut"],
        "seeded": {"snapshot": "good", "at": 1.0},
    }
    text = render_snapshots(SnapshotsReport("ct200", "ct200", parse_snapshots(answer)))
    good, torn, cut = (
        next(line for line in text.splitlines() if line.split()[:1] == [name]) for name in ("good", "torn", "cut")
    )
    assert "complete, 1 odd files not described, the live cache was made from it" in good
    assert "5.0 kB  4 " in good and "1970-01-01 00:00:00 by me@pc" in good and "r2, r3 and 1 more" in good
    assert "DAMAGED" in torn and "incomplete" in cut
