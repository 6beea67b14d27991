"""What is in the live compile caches, by kind and device, who uses them, and how they compare with a snapshot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.far import cache_census, cache_clear, cache_plan, cache_seed, lease, live
from orchestrator.probes.cache_census import parse_census

ON_GPU = b"\x80\x04source\nwith torch.cuda._DeviceGuard(%d):\n    torch.cuda.set_device(%d)\nx = async_compile.triton("
ON_CPU = b"\x80\x04source\ncpp_fused_add_0 = async_compile.cpp_pybinding(['const float*'], '''"


@pytest.fixture
def warm(place):
    """The layout that Inductor, Triton and torch's extensions make."""
    place.folders = {kind: str(place.base / "caches" / "live" / kind) for kind in ("inductor", "triton", "extensions")}
    inductor, triton, extensions = map(Path, place.folders.values())
    write(inductor / "fxgraph/ro/frojk/px7w", ON_GPU % (5, 5))
    write(inductor / "fxgraph/mp/fmp5u/ougx", ON_GPU % (6, 6))
    write(inductor / "fxgraph/mp/fmp5u/other", ON_GPU % (6, 6))
    write(inductor / "fxgraph/aa/fcpu/x", ON_CPU)
    write(inductor / "fxgraph/bb/fodd/x", b"\x80\x04 says nothing of a device")
    write(inductor / "aotautograd/a2rto/dleo", bytes(40))
    write(inductor / "lx/clxog.py", bytes(30))
    write(inductor / "tq/ctqt4.main.so", bytes(70))
    write(inductor / "locks/ctqt4.lock", b"")
    write(inductor / "triton/5/HASHA/kernel.cubin", bytes(9))
    write(triton / "HASHB/kernel.cubin", bytes(11))
    write(triton / "HASHB/kernel.json", bytes(3))
    write(extensions / "py312_cu130/fused/fused.so", bytes(8))
    write(extensions / "py312_cu130/fused/build.ninja", bytes(2))
    return place


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def shown(place, **params):
    return place.call(cache_census.cache_show, folders=place.folders, **params)


def test_a_cache_that_an_h200_made_is_counted_as_it_was_there(place):
    """Names and sizes as torch 2.11 and triton 3.6 wrote them; of each graph the words that name its device."""
    rows = json.loads((Path(__file__).parents[1] / "data" / "cache" / "h200-torch-2.11.json").read_text())
    place.folders = {kind: str(place.base / "caches" / "live" / kind) for kind in ("inductor", "triton", "extensions")}
    for path, _, said in rows:
        write(place.base / "caches" / "live" / path, b"    with torch.cuda.%s:\n" % said.encode() if said else b"")
    told = shown(place)
    # Three lengths, forward and backward.
    assert told["devices"] == {"graphs": {"cuda:0": 6}, "unknown": 0, "complete": True}
    counts = {kind: (about["entries"], about["files"]) for kind, about in told["kinds"].items()}
    assert counts == {
        "code": (None, 23),
        "aotautograd": (3, 3),
        "fxgraph": (6, 6),
        "triton": (11, 71),
        "cubin": (10, 10),
    }


def test_kinds_and_devices(warm):
    told = shown(warm)
    counts = {kind: (about["entries"], about["files"]) for kind, about in told["kinds"].items()}
    assert counts == {
        "fxgraph": (4, 5),
        "aotautograd": (1, 1),
        "code": (None, 2),
        "lock": (None, 1),
        "cubin": (2, 2),
        "triton": (1, 1),
        "extensions": (1, 2),
    }
    assert told["devices"] == {"graphs": {"cpu": 1, "cuda:5": 1, "cuda:6": 1}, "unknown": 1, "complete": True}
    assert sum(about["bytes"] for about in told["kinds"].values()) == sum(
        about["bytes"] for about in told["folders"].values()
    )


def test_a_cache_within_another_is_counted_once_and_by_its_own_kind(warm):
    warm.folders["triton"] = warm.folders["inductor"] + "/mine"
    write(Path(warm.folders["triton"]) / "HASHC/kernel.cubin", bytes(5))
    told = shown(warm)
    assert told["kinds"]["cubin"] == {"entries": 2, "files": 2, "bytes": 14} and "triton" not in told["folders"]
    assert told["nested"] == {"triton": "inductor/mine"}


def test_it_stops_and_says_so(warm):
    told = shown(warm, max_files=4)
    assert [about["complete"] for about in told["folders"].values()] == [False, False, False]
    assert told["folders"]["inductor"]["files"] == 4
    told = shown(warm, max_s=-1)
    assert told["devices"] == {"graphs": {}, "unknown": 4, "complete": False}


def test_links_are_not_followed_and_what_is_not_there_is_unknown(warm, tmp_path):
    write(tmp_path / "far/fxgraph/aa/key/x", ON_GPU % (1, 1))
    os.symlink(tmp_path / "far/fxgraph/aa", Path(warm.folders["inductor"]) / "fxgraph/zz")
    os.symlink(tmp_path / "far/fxgraph/aa/key/x", Path(warm.folders["inductor"]) / "fxgraph/aa/fcpu/link")
    warm.folders["extensions"] = str(tmp_path / "not there")
    told = shown(warm)
    assert told["kinds"]["fxgraph"]["files"] == 5 and "cuda:1" not in told["devices"]["graphs"]
    assert told["folders"]["extensions"]["bytes"] is None and told["folders"]["extensions"]["exists"] is False


def test_beside_a_snapshot(warm):
    warm.call(lease.lease_acquire, who="me", host="here", pid=1)
    name = warm.call(cache_clear.cache_clear, folders=warm.folders, who="me@here", why="test")["snapshot"]
    warm.call(cache_seed.cache_seed, name=name, folders=warm.folders)
    inductor = Path(warm.folders["inductor"])
    (inductor / "aotautograd/a2rto/dleo").unlink()
    write(inductor / "lx/clxog.py", bytes(31))
    write(inductor / "fxgraph/cc/fnew/x", ON_CPU)
    write(inductor / "lx/new.py", b"")
    told = shown(warm, against=[name, "no-such-snapshot"])
    beside = told["against"][name]
    assert {key: beside[key] for key in ("files", "same", "changed", "gone", "new")} == {
        "files": 14,
        "same": 12,
        "changed": 1,
        "gone": 1,
        "new": 2,
    }
    assert beside["kinds"]["fxgraph"]["entries"] == 4 and told["seeded"]["snapshot"] == name
    assert "no snapshot no-such-snapshot" in told["against"]["no-such-snapshot"]["error"]
    warm.call(lease.lease_release)


def test_who_uses_it(warm):
    assert shown(warm)["users"] == {"live_run": None, "live_uses": None, "processes": []}
    source = "print('ready', flush=True); input()"
    environment = dict(os.environ, TRITON_CACHE_DIR=warm.folders["triton"] + "/")
    other = subprocess.Popen(
        [sys.executable, "-c", source], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    held = live.acquire(str(warm.base))
    live.write_content(held, {"run_id": "20261129-100000-aaaa"})
    run = warm.base / "runs" / "20261129-100000-aaaa"
    try:
        assert other.stdout.readline() == b"ready\n"
        for told_folder, uses in ((warm.folders["inductor"], True), ("/elsewhere", False)):
            run.mkdir(parents=True, exist_ok=True)
            spec = {"run_id": run.name, "created_at": 1.0, "environment": {"TORCHINDUCTOR_CACHE_DIR": told_folder}}
            (run / "run.json").write_text(json.dumps(spec))
            found = shown(warm)["users"]
            assert (found["live_run"], found["live_uses"]) == (run.name, uses)
            assert [process["pid"] for process in found["processes"]] == [other.pid]
    finally:
        os.close(held)
        other.communicate(b"\n", timeout=20)


def test_the_op_and_its_parser_agree(warm):
    census = parse_census(json.loads(json.dumps(shown(warm))))
    assert (census.entries, census.files, census.complete) == (4, 14, True)
    assert census.bytes == sum(folder.bytes for folder in census.folders)
    assert [row.kind for row in census.kinds] == [
        "fxgraph",
        "aotautograd",
        "triton",
        "cubin",
        "extensions",
        "code",
        "lock",
    ]


def test_the_plan_is_that_of_the_newest_run_like_the_next_one(place):
    like = {"payload": "dflash", "settings": {"rows": 8}, "targets": 5, "drafters": 3, "model": None}

    def record(run_id, plan, **changes):
        folder = place.base / "runs" / run_id
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"run_id": run_id, **like, **changes}))
        (folder / "runtime.json").write_text(json.dumps({"compile_plan": plan}))

    assert cache_plan.find_plan(str(place.base), like) is None
    record("r1", {"graphs": {"cuda:0": 4}})
    record("r2", {"graphs": {"cuda:0": 6}}, warmup=True)
    record("r3", {"graphs": {"cuda:0": 2}}, settings={"rows": 1})
    record("r4", {"graphs": {}})
    assert cache_plan.find_plan(str(place.base), like) == {"run_id": "r2", "graphs": {"cuda:0": 6}, "alike": True}
    other = cache_plan.find_plan(str(place.base), dict(like, drafters=1))
    assert other == {"run_id": "r3", "graphs": {"cuda:0": 2}, "alike": False}
