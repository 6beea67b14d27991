"""Save, clear, seed and push of compile caches, each cut short at seeded points; the next command makes it whole."""

import os
import random
from pathlib import Path

import pytest

from orchestrator.agent.far import cache_clear, cache_move, cache_save, cache_seed, lease, snapshots, start, tree_read
from orchestrator.agent.far.blobs import pack_frames
from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.errors import OpError
from orchestrator.agent.far.manifest import json_unpack, unique_blobs
from tests.dying import count_changes, die_at
from tests.run_place import Place

SEED, POINTS = 6, 50
STEPS = {"save": 36, "clear": 18, "seed": 60, "push": 50}
"""About so many changes to the disk each makes; what gets through is no point."""
KINDS = ("inductor", "triton", "extensions")


class Caches(Place):
    def __init__(self, base):
        super().__init__(base)
        self.folders = {kind: str(base / "caches" / "live" / kind) for kind in KINDS}
        self.call(lease.lease_acquire, who="me", host="here", pid=1)

    def fill(self, word):
        for kind, path in self.folders.items():
            for number in range(4):
                entry = Path(path, "aa", f"key{number}")
                entry.mkdir(parents=True, exist_ok=True)
                (entry / "graph").write_text(f"{word} {kind} {number if number > 1 else 'shared'}")

    def live(self):
        return {kind: contents(path) for kind, path in self.folders.items()}

    def kept(self, name):
        return {kind: contents(self.base / "caches" / "snapshots" / name / kind) for kind in KINDS}

    def save(self, name):
        return self.call(cache_save.cache_save, name=name, folders=self.folders, who="me@here")

    def clear(self):
        return self.call(cache_clear.cache_clear, folders=self.folders, who="me@here", why="test")

    def seed(self, name):
        return self.call(cache_seed.cache_seed, name=name, folders=self.folders, replace=True, who="me@here")

    def drop(self, name):
        return self.call(cache_save.cache_drop, name=name)

    def launch(self):
        start._whole_caches(str(self.base))

    def listed(self):
        return self.call(snapshots.list_snapshots)

    def names(self):
        return [row["name"] for row in self.listed()["snapshots"]]

    def require_whole_snapshots(self):
        for name in self.names():
            assert self.call(snapshots.snapshot_verify, name=name) == {"damaged": []}, name

    def push_from(self, source, name):
        """Both ops as the relay joins them, without the two agents between."""
        described, body = source.call(cache_move.cache_describe, name=name)
        files = snapshots.parse_files(json_unpack(body)["files"].encode(), described["manifest"])
        entries = cache_move.merged(files)
        places = {entry.sha256: entry.path for entry in entries}

        def relay(header, data):
            if header["type"] == "event":
                wanted = [
                    (places[sha256], size) for sha256, size in (unique_blobs(entries)[i] for i in json_unpack(data))
                ]
                for frame, packed, _ in pack_frames(tree_read._pieces(described["path"], wanted)):
                    channel.deliver(frame, packed)

        channel = Channel(1, relay)
        params = {"base": str(self.base), "name": name, "manifest": described["manifest"], "who": "me@here"}
        return cache_move.cache_receive(params, body, channel)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def two(tmp_path):
    theirs, ours = Caches(tmp_path / "theirs"), Caches(tmp_path / "ours")
    theirs.fill("theirs")
    theirs.save("theirs")
    ours.fill("first")
    ours.save("nightly")
    yield theirs, ours
    for place in (theirs, ours):
        place.call(lease.lease_release)


def test_fifty_deaths_leave_the_cache_and_every_snapshot_whole(two):
    theirs, ours = two
    new, pushed = ours.kept("nightly"), theirs.kept("theirs")
    empty = {kind: {} for kind in KINDS}
    rng = random.Random(SEED)
    died_in = []
    while len(died_in) < POINTS:
        ours.fill(f"old {len(died_in)}")
        old = ours.live()
        verb = list(STEPS)[len(died_in) % len(STEPS)]
        work = {
            "save": lambda: ours.save("fresh"),
            "clear": ours.clear,
            "seed": lambda: ours.seed("nightly"),
            "push": lambda: ours.push_from(theirs, "theirs"),
        }[verb]
        if die_at(rng.randrange(STEPS[verb]), work):
            died_in.append(verb)
        point = f"point {len(died_in)}, {verb}"
        ours.require_whole_snapshots()
        follows = rng.choice(("launch", "save", "clear", "seed", "push"))
        if follows == "push":
            assert verb in ("clear", "seed") or ours.live() == old, point
            ours.launch()
        else:
            {"launch": ours.launch, "clear": ours.clear, "seed": lambda: ours.seed("nightly")}.get(
                follows, lambda: ours.save("then") if any(ours.live().values()) else ours.launch()
            )()
        whole = {"clear": [old, empty], "seed": [old, new]}.get(verb, [old])
        whole += {"clear": [empty], "seed": [new]}.get(follows, [])
        assert ours.live() in whole, f"{point}, then {follows}"
        if "theirs" not in ours.names():
            ours.push_from(theirs, "theirs")
        assert ours.kept("theirs") == pushed, point
        if "fresh" in ours.names():
            assert ours.kept("fresh") == old, point
        ours.clear()
        found = ours.listed()
        assert (found["unfinished"], found["arriving"]) == ([], []), point
        ours.require_whole_snapshots()
        assert any(ours.kept(name) == old for name in ours.names()), f"{point}: what was there is lost"
        for name in ours.names():
            ours.drop(name) if name != "nightly" else None
        assert ours.listed()["unsaved"] == []


def test_the_rest_of_a_cache_is_not_saved_after_a_clear_that_was_cut_short(two):
    _, ours = two
    moved = []
    for step in range(STEPS["clear"]):
        ours.fill("old")
        old = ours.live()
        assert die_at(step, ours.clear) or step > 12
        moved.append(sum(not found for found in ours.live().values()))
        if ours.live() == old or moved[-1] == len(KINDS):
            ours.launch()
        else:
            with pytest.raises(OpError, match="empty"):
                ours.save("rest")
        assert ours.live() in (old, {kind: {} for kind in KINDS}), f"step {step}"
        ours.clear()
    assert {0, 1, 2, 3} <= set(moved)


def test_a_push_that_died_once_its_snapshot_had_its_name_does_not_lend_its_files_to_the_next(two):
    theirs, ours = two
    theirs.fill("theirs")
    for path in Path(theirs.folders["triton"]).rglob("graph"):
        os.utime(path, ns=(5, 5))
    theirs.save("other-times")
    steps = count_changes(lambda: ours.push_from(theirs, "theirs"))
    ours.drop("theirs")
    for step in range(steps - 8, steps):
        assert die_at(step, lambda: ours.push_from(theirs, "theirs"))
        if "theirs" not in ours.names():
            continue
        files = list((ours.base / "caches" / "snapshots" / "theirs").rglob("graph"))
        before = [path.stat().st_mtime_ns for path in files]
        ours.push_from(theirs, "other-times")
        assert [path.stat().st_mtime_ns for path in files] == before, f"step {step}"
        for name in ("theirs", "other-times"):
            ours.drop(name)
