"""orch cache in the labs: real small files in the layout of the real caches, through SSH and pct."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said

numbers = itertools.count(1)

# Compiles as Inductor does: an entry that is there already is left alone.
TRAINING = """\
import os, pathlib, sys

def made(variable, name, data):
    path = pathlib.Path(os.environ[variable], name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

for number in range(int(sys.argv[1])):
    graph = b"with torch.cuda._DeviceGuard(%d):" % (number % 2)
    made("TORCHINDUCTOR_CACHE_DIR", "fxgraph/aa/key%d/entry" % number, graph + bytes(1000))
    made("TORCHINDUCTOR_CACHE_DIR", "ab/code%d.py" % number, b"# code")
made("TRITON_CACHE_DIR", "HASH/kernel.cubin", bytes(500))
print("step 1 loss 1.0", flush=True)
"""


class CachePlace(Place):
    def train(self, graphs: int) -> None:
        self.write(command=["python3", "foreign.py", str(graphs)])
        self.ok("deploy")
        self.ok("launch", "--wait", "end")

    def record(self, *words: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.ok("cache", *words, "--json"))
        assert record["schema"] == "orch.cache/1"
        return record


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[CachePlace]:
    place = CachePlace(either_lab, tmp_path, f"q{next(numbers)}")
    (place.payload / "foreign.py").write_text(TRAINING)
    yield place
    place.clean()


def test_a_cache_is_known_cleared_and_known_to_be_poor(place: CachePlace) -> None:
    assert "not there" in place.ok("cache", "show") and "none" in place.ok("cache", "list")
    nothing = place.orch("cache", "save", "first")
    assert nothing.returncode == 2 and b"-> orch warmup" in nothing.stderr
    place.train(40)
    found = place.record("show")
    assert (found["cache"]["graphs"], found["cache"]["devices"]["graphs"]) == (40, {"cuda:0": 20, "cuda:1": 20})
    assert found["cache"]["at_launch"]["folders"][0]["exists"] is False
    place.ok("reset", "--clear-cache", "--yes")
    listed = place.record("list")["kept"]
    assert [(row["bytes"], row["files"], len(row["runs"])) for row in listed] == [(found["cache"]["bytes"], 81, 1)]
    place.train(2)
    text = place.ok("cache", "show")
    assert "2 compiled graphs, 5 files: 6" in text.splitlines()[1] and "of the last good run's" in text


def test_it_is_saved_verified_and_dropped(place: CachePlace) -> None:
    place.train(3)
    assert "saved" in place.ok("cache", "save", "nightly")
    again = place.record("save", "nightly-2")
    assert (again["files"], again["linked"]) == (7, 7)
    taken, empty = place.orch("cache", "save", "nightly"), place.orch("cache", "save", "../x")
    assert (taken.returncode, empty.returncode) == (10, 2) and b"orch cache save ANOTHER-NAME" in taken.stderr
    assert place.record("verify")["damaged"] == {"nightly": [], "nightly-2": []}
    kernel = f"{place.base}/caches/snapshots/nightly/triton/HASH/kernel.cubin"
    place.inside("sh", "-c", f"cp {kernel} {kernel}.x && mv {kernel}.x {kernel} && echo >> {kernel}")
    done = place.orch("cache", "verify")
    assert done.returncode == 14 and b"nightly/triton/HASH/kernel.cubin" in done.stderr
    assert b"nightly-2  whole" in done.stdout
    refused = place.orch("cache", "drop", "nightly")
    assert refused.returncode == 10 and b"last good run" in refused.stderr
    place.ok("cache", "drop", "nightly", "--force")
    place.ok("cache", "save", "nightly-3")
    assert "would drop nightly-3" in place.ok("cache", "drop", "--keep", "1", "--dry-run")
    assert place.record("drop", "--keep", "1")["snapshots"] == ["nightly-3"]
    assert [row["name"] for row in place.record("list")["kept"]] == ["nightly-2"]  # of the last good run
    assert place.orch("cache", "drop").returncode == 2 == place.orch("cache", "drop", "x", "--keep", "1").returncode


@pytest.mark.parametrize("either_lab", [pytest.param("embedded_lab", marks=pytest.mark.lab)], indirect=True)
def test_a_launch_seeds_first_or_starts_nothing(place: CachePlace) -> None:
    place.train(3)
    place.ok("cache", "save", "nightly")
    place.ok("cache", "clear")
    manifest = f"{place.base}/caches/snapshots/nightly/manifest.json"
    place.inside("sed", "-i", 's/"python": *"3/"python": "2/', manifest)
    runs = len(json.loads(place.ok("runs", "--json"))["runs"])
    for words in (("launch", "--seed", "nightly"), ("reset", "--clear-cache", "--seed", "nightly", "--yes")):
        refused = place.orch(*words)
        assert refused.returncode == 10 and b"python: 2." in refused.stderr and b"--force" in refused.stderr
    assert place.orch("launch", "--seed", "no-such").returncode == 2 == place.orch("launch", "--replace").returncode
    assert place.record("show")["cache"]["files"] == 0
    assert len(json.loads(place.ok("runs", "--json"))["runs"]) == runs
    text = place.ok("launch", "--seed", "nightly", "--force", "--wait", "end")
    assert "cache is made from snapshot nightly: " in text and "DIFFERS, seeded by force: python: 2." in text
    place.inside("sed", "-i", 's/"python": *"2/"python": "3/', manifest)
    again = place.ok("launch", "--seed", "nightly", "--wait", "end")
    assert "the cache was made from it already" in again and "ended well" in again
    place.ok("cache", "save", "later")
    full = place.orch("launch", "--seed", "later", "--set", "steps=7")
    assert full.returncode == 10 and b"-> the same command again, with --replace  " in full.stderr, said(full)
    assert "is kept as snapshot 2" in place.ok("launch", "--seed", "later", "--replace", "--wait", "end")
    row = place.record("show")["cache"]["against"][0]
    assert (row["snapshot"], row["gone"], row["new"]) == ("later", 0, 0)
    assert place.status()["cache_warning"] is None
    place.train(5)
    status = place.status()
    assert status["cache_warning"].startswith("seeded from later, but 4 new files; differs: command ("), status
    assert status["cache"]["new_files"] == 4 and "4 files new since the launch" in place.ok("status")


def test_it_is_seeded_only_where_it_fits(place: CachePlace) -> None:
    place.train(3)
    place.ok("cache", "save", "nightly")
    before = place.record("show")["cache"]["bytes"]
    assert "kept as snapshot 2" in place.ok("cache", "clear")
    assert place.record("clear")["snapshot"] is None
    assert "made from snapshot nightly" in place.ok("cache", "seed", "nightly")
    assert place.record("show")["cache"]["bytes"] == before
    full = place.orch("cache", "seed", "last-good")
    assert full.returncode == 10 and b"--replace" in full.stderr
    manifest = f"{place.base}/caches/snapshots/nightly/manifest.json"
    place.inside("sed", "-i", 's/"python": *"3/"python": "2/', manifest)
    for words, code in ((("--replace",), 10), (("--replace", "--force"), 0)):
        done = place.orch("cache", "seed", "nightly", *words)
        assert done.returncode == code, said(done)
        assert b"python: 2." in done.stderr + done.stdout
    row = place.record("show")["cache"]["against"][0]
    assert (row["snapshot"], row["same"], row["gone"], row["new"]) == ("nightly", 7, 0, 0)
    assert len(place.record("list")["kept"]) == 3


def test_a_snapshot_is_pulled_here_and_pushed_back(place: CachePlace) -> None:
    place.train(30)
    place.ok("cache", "save", "nightly")
    here, root = f"--here={place.folder}", str(place.folder)
    pulled = place.record("pull", "last-good", "--to", root)
    assert (pulled["snapshot"], pulled["files"], pulled["contents_sent"]) == ("nightly", 61, 4)
    assert place.record("verify", here)["damaged"] == {"nightly": []}
    again = place.record("push", "nightly", "--from", root)
    assert (again["already_there"], again["contents_sent"], again["bytes_sent"]) == (True, 0, 0)
    assert place.orch("cache", "push", "nightly", "--from", root, "--as", "last-good").returncode == 2
    place.ok("cache", "drop", "nightly", "--force")
    kernel = place.folder / "orch/caches/snapshots/nightly/triton/HASH/kernel.cubin"
    kernel.write_bytes(b"x" * 500)
    done = place.orch("cache", "push", "nightly", "--from", root)
    assert done.returncode == 10 and b"triton/HASH/kernel.cubin" in done.stderr, said(done)
    kernel.write_bytes(bytes(500))
    sent = place.record("push", "nightly", "--from", root)["contents_sent"]
    assert sent == 1, "what had come before the damaged one is kept"
    assert "made from snapshot nightly" in place.ok("cache", "seed", "last-good", "--replace")
    place.ok("cache", "drop", "nightly", here)
    assert "none" in place.ok("cache", "list", here)
