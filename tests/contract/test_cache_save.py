"""Keeping a copy of the live caches, and letting one go: real folders, agents that die at each step."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from orchestrator.agent.far import (
    cache_clear,
    cache_makers,
    cache_save,
    cache_seed,
    copying,
    lease,
    live,
    snapshots,
    start,
)
from orchestrator.agent.far.errors import OpError
from tests.dying import die_at


@pytest.fixture
def cached(place):
    """A base with three live caches and the lease."""
    place.folders = {kind: str(place.base / "caches" / "live" / kind) for kind in ("inductor", "triton", "extensions")}
    fill(place, "warm")
    place.call(lease.lease_acquire, who="me", host="here", pid=1)
    yield place
    place.call(lease.lease_release)


def fill(place, word):
    for kind, path in place.folders.items():
        (Path(path) / "aa" / "bb").mkdir(parents=True, exist_ok=True)
        (Path(path) / "aa" / "bb" / "kernel.so").write_text(f"{word} {kind}")
        (Path(path) / "aa" / "bb" / "kernel.so").chmod(0o755)
        (Path(path) / "top.json").write_text("{}")
        if not os.path.lexists(f"{path}/link"):
            (Path(path) / "link").symlink_to("top.json")


def contents(folder):
    """Every name below it: content or target, and for files mode and time."""
    found = {}
    for top, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = os.path.join(top, name)
            if os.path.islink(path):
                found[os.path.relpath(path, folder)] = os.readlink(path)
            elif os.path.isfile(path):
                facts = os.stat(path)
                found[os.path.relpath(path, folder)] = (
                    Path(path).read_bytes(),
                    facts.st_mode & 0o111,
                    facts.st_mtime_ns,
                )
            else:
                found[os.path.relpath(path, folder)] = None
    return found


def all_of(place):
    return {kind: contents(path) for kind, path in place.folders.items()}


def kept(place, name):
    folder = place.base / "caches" / "snapshots" / name
    return {kind: contents(folder / kind) for kind in place.folders}


def save(place, name, **params):
    return place.call(cache_save.cache_save, name=name, folders=place.folders, who="me@here", **params)


def clear(place):
    return place.call(cache_clear.cache_clear, folders=place.folders, who="me@here", why="test")


def seed(place, name):
    return place.call(cache_seed.cache_seed, name=name, folders=place.folders)


def listed(place):
    return place.call(snapshots.list_snapshots)


def whole(place, name):
    return place.call(snapshots.snapshot_verify, name=name) == {"damaged": []}


def test_a_save_is_the_cache_again_and_leaves_it_alone(cached):
    before = all_of(cached)
    done = save(cached, "nightly")
    assert (done["snapshot"], done["files"], done["linked"], done["odd"]) == ("nightly", 6, 0, [])
    assert all_of(cached) == before == kept(cached, "nightly") and whole(cached, "nightly")
    Path(cached.folders["triton"], "top.json").write_text("written in place")
    assert kept(cached, "nightly") == before, "a save must not share files with the live cache"
    clear(cached)
    seed(cached, "nightly")
    assert all_of(cached) == before


def test_equal_files_are_stored_once(cached):
    save(cached, "one")
    Path(cached.folders["inductor"], "top.json").write_text("{}")  # the same again, at another time
    Path(cached.folders["triton"], "new").write_text("new")
    before = all_of(cached)
    done = save(cached, "two")
    assert (done["files"], done["linked"]) == (7, 5) and kept(cached, "two") == before
    one, two = (cached.base / "caches" / "snapshots" / name for name in ("one", "two"))
    assert os.path.samefile(one / "triton" / "top.json", two / "triton" / "top.json")
    assert not os.path.samefile(one / "inductor" / "top.json", two / "inductor" / "top.json")
    cached.call(cache_save.cache_drop, name="one")
    assert whole(cached, "two") and kept(cached, "two") == before


def test_the_same_content_with_another_mode_is_another_file(cached):
    save(cached, "one")
    os.chmod(Path(cached.folders["triton"], "top.json"), 0o755)
    before = all_of(cached)
    assert save(cached, "two")["linked"] == 5 and kept(cached, "two") == before


def test_a_file_that_is_written_to_while_it_is_read_is_not_kept(cached, monkeypatch):
    victim = Path(cached.folders["inductor"], "aa", "bb", "kernel.so")
    digest = copying.hashlib.sha256

    class Slow:
        def __init__(self):
            self._digest = digest()

        def update(self, data):
            self._digest.update(data)
            victim.write_bytes(bytes(victim.stat().st_size))  # of the same length

        def hexdigest(self):
            return self._digest.hexdigest()

    monkeypatch.setattr(copying.hashlib, "sha256", lambda *words: digest(*words) if words else Slow())
    with pytest.raises(OpError, match="written to") as caught:
        save(cached, "nightly")
    assert caught.value.evidence == "inductor/aa/bb/kernel.so"


def test_what_is_damaged_is_never_linked(cached):
    save(cached, "one")
    victim = cached.base / "caches" / "snapshots" / "one" / "triton" / "top.json"
    times = os.stat(victim)
    victim.write_text("[]")
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    before = all_of(cached)
    assert save(cached, "two")["linked"] == 5 and whole(cached, "two") and kept(cached, "two") == before
    assert cached.call(snapshots.snapshot_verify, name="one") == {"damaged": ["triton/top.json"]}


@pytest.mark.parametrize("why", ["live", "lease", "taken", "name", "empty", "link"])
def test_it_is_refused_and_keeps_nothing(cached, tmp_path, why):
    name = "nightly"
    kinds = {"live": "busy", "lease": "no_lease", "taken": "conflict", "name": "bad_request", "empty": "missing"}
    held = None
    if why == "live":
        held = live.acquire(str(cached.base))
    elif why == "lease":
        cached.call(lease.lease_release)
    elif why == "taken":
        save(cached, name)
    elif why == "name":
        name = "../live"
    elif why == "empty":
        shutil.rmtree(cached.base / "caches" / "live")
    else:
        shutil.move(cached.folders["triton"], tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", cached.folders["triton"])
    earlier = listed(cached)["snapshots"]
    with pytest.raises(OpError) as caught:
        save(cached, name)
    assert caught.value.kind == kinds.get(why, "bad_folder") and listed(cached)["snapshots"] == earlier
    assert listed(cached)["unsaved"] == []
    if held is not None:
        os.close(held)


@pytest.mark.parametrize("how", ["grown", "added", "gone"])
def test_a_cache_that_is_written_to_meanwhile_is_not_kept(cached, monkeypatch, how):
    copy = cache_save.copy_hashed
    path = Path(cached.folders["inductor"])

    def meanwhile(source, target, mode):
        sha256 = copy(source, target, mode)
        if how == "grown":
            with open(path / "aa" / "bb" / "kernel.so", "a") as stream:
                stream.write("more")
        elif how == "added":
            (path / "aa" / "other").write_text("")
        elif (path / "top.json").exists():
            (path / "top.json").unlink()
        return sha256

    monkeypatch.setattr(cache_save, "copy_hashed", meanwhile)
    with pytest.raises(OpError) as caught:
        save(cached, "nightly")
    assert caught.value.kind == "busy" and listed(cached)["snapshots"] == [] and listed(cached)["unsaved"] == []


def test_a_full_disk_leaves_nothing_behind(cached, monkeypatch):
    before, calls = all_of(cached), []

    def full(*words):
        calls.append(words)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_save, "sync_file_system", full)
    with pytest.raises(OpError) as caught:
        save(cached, "nightly")
    assert caught.value.kind == "disk_full" and calls and all_of(cached) == before
    assert os.listdir(cached.base / "caches" / "snapshots") == []


def test_a_save_cut_short_anywhere_is_no_snapshot_and_can_be_done_again(cached):
    save(cached, "older")
    step = 0
    while True:
        before = all_of(cached)
        died = die_at(step, lambda: save(cached, "nightly"))
        found = listed(cached)
        names = [row["name"] for row in found["snapshots"]]
        assert all_of(cached) == before and whole(cached, "older"), f"step {step}"
        if "nightly" in names:
            assert whole(cached, "nightly") and kept(cached, "nightly") == before, f"step {step}"
            cached.call(cache_save.cache_drop, name="nightly")
        else:
            assert found["unsaved"] in ([], ["nightly"])
        save(cached, "nightly")
        assert listed(cached)["unsaved"] == [] and kept(cached, "nightly") == before
        cached.call(cache_save.cache_drop, name="nightly")
        if not died:
            break
        step += 1
    assert step > 15


def test_a_drop_cut_short_anywhere_leaves_it_whole_or_gone(cached):
    save(cached, "other")
    step = 0
    while True:
        save(cached, "nightly")
        died = die_at(step, lambda: cached.call(cache_save.cache_drop, name="nightly"))
        names = [row["name"] for row in listed(cached)["snapshots"]]
        assert "nightly" not in names or whole(cached, "nightly"), f"step {step}"
        assert whole(cached, "other")
        save(cached, "sweep") if "nightly" in names else save(cached, "nightly")
        assert not [name for name in os.listdir(cached.base / "caches" / "snapshots") if name.startswith(".")]
        cached.call(cache_save.cache_drop, name="nightly")
        if "nightly" in names:
            cached.call(cache_save.cache_drop, name="sweep")
        if not died:
            break
        step += 1
    assert step > 10


def test_a_clear_goes_on_where_a_save_was_cut(cached):
    before = all_of(cached)
    assert die_at(8, lambda: save(cached, "nightly"))
    name = clear(cached)["snapshot"]
    assert kept(cached, name) == before


def record_run(place, run_id, at, torch, gpu="NVIDIA H200"):
    run = place.base / "runs" / run_id
    run.mkdir(parents=True)
    spec = {"run_id": run_id, "created_at": at, "environment": {"TRITON_CACHE_DIR": place.folders["triton"]}}
    (run / "run.json").write_text(json.dumps(spec))
    identity = {
        "torch": {"version": torch, "cuda": "13.0"},
        "packages": {"torch": torch, "triton": "3.6.0"},
        "builds": {"torch": "t" * 16, "triton": "r" * 16},
        "python": {"version": "3.12.3"},
        "gpus": [{"index": 0, "name": gpu, "capability": "9.0"}, {"index": 1, "name": gpu, "capability": "9.0"}],
        "release": {"tree_hash": "c" * 64},
        "driver": {"version": "580.65"},
        "spec": {"settings": {"lr": 1}, "argv": ["python", "train.py"]},
    }
    (run / "fingerprint.json").write_text(json.dumps({"schema": "orch.fingerprint/2", "identity": identity}))
    return identity


def test_a_snapshot_says_what_its_entries_were_made_with(cached):
    old = record_run(cached, "r1", 1.0, "2.11.0+cu130")
    record_run(cached, "r2", 2.0, "2.11.0+cu130")
    record_run(cached, "r3", 3.0, "2.13.0+cu130")
    save(cached, "nightly")
    manifest = listed(cached)["snapshots"][0]["manifest"]
    assert manifest["runs"] == ["r1", "r2", "r3"]
    assert [(made["run_id"], made["hard"]["torch"]) for made in manifest["made_by"]] == [
        ("r3", "2.13.0+cu130"),
        ("r2", "2.11.0+cu130"),
    ]
    assert manifest["made_by"][0]["hard"] == {
        "torch": "2.13.0+cu130",
        "torch_build": "t" * 16,
        "cuda": "13.0",
        "triton": "3.6.0",
        "triton_build": "r" * 16,
        "python": "3.12",
        "gpus": ["NVIDIA H200"],
        "capability": ["sm_90"],
    }
    older = dict(old, gpus=[{"name": "NVIDIA H200", "capability": None}])
    assert cache_makers.maker(older)["hard"]["capability"] is None
    assert (
        manifest["made_by"][0]["soft"]["gpu_count"] == 2 and cache_makers.maker(old)["hard"]["torch"] == "2.11.0+cu130"
    )


def test_a_save_does_not_take_the_runs_from_what_is_cleared_later(cached):
    record_run(cached, "r1", 1.0, "2.11.0")
    save(cached, "nightly")
    name = clear(cached)["snapshot"]
    manifests = {row["name"]: row["manifest"] for row in listed(cached)["snapshots"]}
    assert manifests[name]["runs"] == ["r1"] == manifests["nightly"]["runs"]
    seed(cached, "nightly")
    assert [made["run_id"] for made in cache_makers.makers(str(cached.base), cached.folders)] == ["r1"]


def test_caches_of_unknown_makers_are_said_to_be_of_now(cached):
    save(cached, "nightly", identity={"torch": {"version": "2.13.0"}, "gpus": None})
    made = listed(cached)["snapshots"][0]["manifest"]["made_by"]
    assert [(one["run_id"], one["hard"]["torch"], one["hard"]["gpus"]) for one in made] == [(None, "2.13.0", None)]


def replace(place, name):
    return place.call(cache_seed.cache_seed, name=name, folders=place.folders, replace=True, who="me@here")


def test_a_seed_over_what_is_there_keeps_that_as_a_snapshot(cached):
    save(cached, "nightly")
    new = all_of(cached)
    fill(cached, "other")
    Path(cached.folders["extensions"], "more").write_text("only here")
    old = all_of(cached)
    done = replace(cached, "nightly")
    assert all_of(cached) == new and kept(cached, done["aside"]) == old and whole(cached, done["aside"])
    manifest = {row["name"]: row["manifest"] for row in listed(cached)["snapshots"]}[done["aside"]]
    assert (manifest["who"], manifest["why"]) == ("me@here", "seed")
    assert listed(cached)["seeded"]["snapshot"] == "nightly" and not (cached.base / "caches" / "seeding.json").exists()


def test_a_seed_cut_short_anywhere_leaves_the_old_cache_or_the_new_one(cached):
    """Whoever comes next, in turn: a launch, a clear, a save, another seed."""
    new = all_of(cached)
    save(cached, "nightly")
    step = 0
    while True:
        next_comes = ("launch", "clear", "save", "seed")[step % 4]
        fill(cached, f"old {step}")
        old = all_of(cached)
        known = {row["name"] for row in listed(cached)["snapshots"]}
        died = die_at(step, lambda: replace(cached, "nightly"))
        assert whole(cached, "nightly")
        begun = (cached.base / "caches" / "seeding.json").exists()
        if next_comes == "launch":
            start._whole_caches(str(cached.base))
            assert all_of(cached) == new or (all_of(cached) == old and not begun), f"step {step}"
            clear(cached)
        elif next_comes == "clear":
            clear(cached)
        elif next_comes == "save":
            save(cached, "then")
            assert kept(cached, "then") == all_of(cached) == (new if begun or not died else all_of(cached))
            assert all_of(cached) in (old, new), f"step {step}"
            cached.call(cache_save.cache_drop, name="then")
            clear(cached)
        else:
            replace(cached, "nightly")
            assert all_of(cached) == new, f"step {step}"
            clear(cached)
        found = listed(cached)
        fresh = [row["name"] for row in found["snapshots"] if row["name"] not in known]
        assert found["unfinished"] == [] and all(whole(cached, name) for name in fresh), f"step {step}"
        assert any(kept(cached, name) == old for name in fresh), f"step {step}: what was there is lost"
        for name in fresh:
            cached.call(cache_save.cache_drop, name=name)
        if not died:
            break
        step += 1
    assert step > 30


@pytest.mark.parametrize("next_comes", ["launch", "save"])
def test_what_others_wrote_after_a_cut_seed_is_kept_and_stops_nobody(cached, next_comes):
    """A training that orch did not start does not ask what a seeding had begun."""
    new = all_of(cached)
    save(cached, "nightly")
    step, met = 0, 0
    while True:
        clear(cached)
        known = {row["name"] for row in listed(cached)["snapshots"]}
        died = die_at(step, lambda: seed(cached, "nightly"))
        if (cached.base / "caches" / "seeding.json").exists():
            late = [kind for kind, path in cached.folders.items() if os.path.isdir(path + ".orch-seeding")]
            for kind in late:
                Path(cached.folders[kind]).mkdir()
                Path(cached.folders[kind], "stray").write_text(kind)
            if next_comes == "launch":
                start._whole_caches(str(cached.base))
                assert all_of(cached) == new, f"step {step}"
                clear(cached)  # describes what the launch only moved
            else:
                save(cached, "then")
                assert all_of(cached) == new == kept(cached, "then"), f"step {step}"
                cached.call(cache_save.cache_drop, name="then")
            fresh = [row["name"] for row in listed(cached)["snapshots"] if row["name"] not in known]
            folders = [cached.base / "caches" / "snapshots" / name for name in fresh]
            found = [file.read_text() for folder in folders for file in folder.glob("*/stray")]
            assert sorted(found) == sorted(late) and all(whole(cached, name) for name in fresh), f"step {step}"
            met += bool(late)
        if not died:
            break
        step += 1
    assert met >= 3


def test_a_damaged_snapshot_is_never_half_seeded(cached):
    save(cached, "nightly")
    (cached.base / "caches" / "snapshots" / "nightly" / "triton" / "top.json").write_text("[]")
    fill(cached, "old")
    old = all_of(cached)
    with pytest.raises(OpError, match=r"triton/top\.json") as caught:
        replace(cached, "nightly")
    assert caught.value.kind == "damaged" and all_of(cached) == old
    assert not list(cached.base.rglob("*.orch-seeding")) and len(listed(cached)["snapshots"]) == 1
