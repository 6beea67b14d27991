"""Setting the compile caches aside and making them from a snapshot: real folders, agents that die at each step."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from orchestrator.agent.far import cache_aside, cache_clear, cache_save, cache_seed, lease, live, records, snapshots
from orchestrator.agent.far.errors import OpError
from tests.dying import die_at


@pytest.fixture
def cached(place):
    """A base with three live caches and the lease."""
    place.folders = {kind: str(place.base / "caches" / "live" / kind) for kind in ("inductor", "triton", "extensions")}
    fill(place.folders)
    place.call(lease.lease_acquire, who="me", host="here", pid=1)
    yield place
    place.call(lease.lease_release)


@pytest.fixture
def elsewhere():
    """A folder on another file system than /tmp, if there is one."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if folder.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("/tmp and /dev/shm are one file system")
    yield folder
    shutil.rmtree(folder)


def fill(folders, word="warm"):
    for kind, path in folders.items():
        (Path(path) / "aa" / "bb").mkdir(parents=True, exist_ok=True)
        (Path(path) / "aa" / "bb" / "kernel.so").write_text(f"{word} {kind}")
        (Path(path) / "top.json").write_text("{}")
        (Path(path) / "link").symlink_to("top.json") if not os.path.lexists(f"{path}/link") else None


def contents(folder):
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            found[os.path.relpath(path, folder)] = os.readlink(path) if os.path.islink(path) else Path(path).read_text()
    return found


def all_of(folders):
    return {kind: contents(path) for kind, path in folders.items()}


def clear(place):
    return place.call(cache_clear.cache_clear, folders=place.folders, who="me@here", why="reset")


def kept(place, name):
    folder = place.base / "caches" / "snapshots" / name
    return {kind: contents(folder / kind) for kind in place.folders}


def test_a_clear_keeps_everything_and_says_what(cached):
    before = all_of(cached.folders)
    done = clear(cached)
    assert kept(cached, done["snapshot"]) == before
    assert not any(os.path.exists(path) for path in cached.folders.values())
    assert done["files"] == 6 and done["bytes"] == sum(len(text) for text in ("warm inductor", "warm triton")) + 21
    listed = cached.call(snapshots.list_snapshots)
    manifest = listed["snapshots"][0]["manifest"]
    assert listed["unfinished"] == [] and manifest["who"] == "me@here"
    assert manifest["folders"]["triton"] == {"path": cached.folders["triton"], "bytes": 13, "files": 2}
    assert cached.call(snapshots.snapshot_verify, name=done["snapshot"]) == {"damaged": []}


def test_clearing_what_is_empty_makes_no_snapshot(cached):
    clear(cached)
    os.makedirs(cached.folders["triton"])
    assert clear(cached)["snapshot"] is None
    assert len(cached.call(snapshots.list_snapshots)["snapshots"]) == 1


def test_a_snapshot_names_the_runs_that_used_it(cached):
    for run_id, folder in (("20261129-100000-aaaa", cached.folders["triton"]), ("20261129-110000-bbbb", "/elsewhere")):
        run = cached.base / "runs" / run_id
        run.mkdir(parents=True)
        spec = {"run_id": run_id, "created_at": 1.0, "environment": {"TRITON_CACHE_DIR": folder}}
        (run / "run.json").write_text(json.dumps(spec))
    clear(cached)
    manifest = cached.call(snapshots.list_snapshots)["snapshots"][0]["manifest"]
    assert manifest["runs"] == ["20261129-100000-aaaa"]


def test_it_is_refused_while_a_run_is_live_or_without_the_lease(cached):
    before = all_of(cached.folders)
    held = live.acquire(str(cached.base))
    live.write_content(held, {"run_id": "20261129-100000-aaaa"})
    with pytest.raises(OpError, match="20261129-100000-aaaa is live") as caught:
        clear(cached)
    assert caught.value.kind == "busy"
    os.close(held)
    cached.call(lease.lease_release)
    with pytest.raises(OpError, match="needs the lease"):
        clear(cached)
    assert all_of(cached.folders) == before


@pytest.mark.parametrize("wrong", ["link", "above", "file", "relative"])
def test_it_moves_only_what_is_a_folder_of_its_own(cached, tmp_path, wrong):
    path = {"above": str(cached.base.parent), "relative": "caches"}.get(wrong, str(tmp_path / "odd"))
    if wrong == "link":
        os.symlink(cached.folders.pop("triton"), path)
    elif wrong == "file":
        Path(path).write_text("")
    cached.folders["odd"] = path
    with pytest.raises(OpError) as caught:
        clear(cached)
    assert caught.value.kind == "bad_folder" and os.listdir(cached.folders["inductor"])


@pytest.mark.parametrize("where", ["runs", "releases/aa", "caches", "caches/snapshots", "caches/snapshots/old/triton"])
def test_what_orch_keeps_is_no_cache_whatever_the_inventory_says(cached, where):
    cached.folders["triton"] = str(cached.base / where)
    Path(cached.folders["triton"]).mkdir(parents=True, exist_ok=True)
    with pytest.raises(OpError, match="what orch keeps") as caught:
        clear(cached)
    assert caught.value.kind == "bad_folder" and os.listdir(cached.folders["inductor"])


def test_one_folder_by_two_names_is_refused(cached, tmp_path):
    (tmp_path / "alias").symlink_to(cached.folders["inductor"])
    cached.folders["triton"] = str(tmp_path / "alias" / "aa")
    with pytest.raises(OpError, match="only through a link") as caught:
        clear(cached)
    assert caught.value.kind == "bad_folder" and os.listdir(cached.folders["inductor"])


def test_a_cut_clear_is_finished_though_the_place_of_a_cache_is_gone(cached, tmp_path):
    cached.folders["triton"] = str(tmp_path / "gone" / "triton")
    fill(cached.folders)
    cached.call(
        lambda params, body, channel: cache_aside.write_intent(
            params["base"], "cut", cached.folders, cached.folders, {}
        )
    )
    shutil.rmtree(tmp_path / "gone")
    before = contents(cached.folders["inductor"])
    clear(cached)
    assert kept(cached, "cut")["inductor"] == before
    assert cached.call(snapshots.list_snapshots)["unfinished"] == []


def test_links_are_not_followed(cached, tmp_path):
    (tmp_path / "precious").write_text("keep me")
    os.symlink(tmp_path / "precious", Path(cached.folders["inductor"]) / "outward")
    done = clear(cached)
    assert done["odd"] == ["inductor/outward"] and (tmp_path / "precious").read_text() == "keep me"
    assert cached.call(snapshots.snapshot_verify, name=done["snapshot"]) == {"damaged": []}


def test_a_cache_within_another_goes_and_comes_with_it(cached):
    cached.folders["triton"] = cached.folders["inductor"] + "/triton/0"
    fill(cached.folders)
    before = all_of(cached.folders)
    done = clear(cached)
    manifest = cached.call(snapshots.list_snapshots)["snapshots"][0]["manifest"]
    assert manifest["nested"] == {"triton": "inductor/triton/0"}
    cached.call(cache_seed.cache_seed, name=done["snapshot"], folders=cached.folders)
    assert all_of(cached.folders) == before


def test_a_cache_on_another_file_system_is_copied_and_compared(cached, elsewhere):
    cached.folders["triton"] = str(elsewhere / "triton")
    fill(cached.folders)
    os.mkfifo(elsewhere / "triton" / "pipe")
    before_pipe = contents(cached.folders["inductor"])
    done = clear(cached)
    aside = f"{elsewhere}/triton.orch-aside-{done['snapshot']}"
    assert done["odd"] == [] and done["kept"] == [aside]  # a pipe cannot be copied: what holds it is kept
    assert kept(cached, done["snapshot"])["inductor"] == before_pipe
    assert not os.path.exists(cached.folders["triton"])
    assert kept(cached, done["snapshot"])["triton"]["aa/bb/kernel.so"] == "warm triton"


@pytest.mark.parametrize("where", ["here", "other"])
def test_a_clear_cut_short_anywhere_is_finished_by_the_next_and_loses_nothing(cached, request, where):
    if where == "other":
        cached.folders["triton"] = str(request.getfixturevalue("elsewhere") / "triton")
    step = 0
    while True:
        fill(cached.folders, f"state {step}")
        before = all_of(cached.folders)
        earlier = {row["name"] for row in cached.call(snapshots.list_snapshots)["snapshots"]}
        died = die_at(step, lambda: clear(cached))
        second = clear(cached)
        listed = cached.call(snapshots.list_snapshots)
        assert listed["unfinished"] == [] and not any(map(os.path.exists, cached.folders.values()))
        new = [row["name"] for row in listed["snapshots"] if row["name"] not in earlier]
        assert [kept(cached, name) for name in new] == [before], f"step {step}: {second}"
        assert cached.call(snapshots.snapshot_verify, name=new[0]) == {"damaged": []}
        assert not list(Path(cached.folders["triton"]).parent.glob("*.orch-*"))
        if not died:
            break
        step += 1
    assert step > 10


def test_a_cut_clear_whose_caches_came_back_makes_two_snapshots(cached):
    first = all_of(cached.folders)
    assert die_at(12, lambda: clear(cached))
    gone = {kind: path for kind, path in cached.folders.items() if not os.path.exists(path)}
    assert gone, "it was cut too early for this test"
    fill(gone, "new")
    clear(cached)
    names = [row["name"] for row in cached.call(snapshots.list_snapshots)["snapshots"]]
    assert len(names) == 2 and kept(cached, names[0]) == first
    assert {kind: found for kind, found in kept(cached, names[1]).items() if found}.keys() == gone.keys()


def test_a_seed_is_the_snapshot_again_and_leaves_it_alone(cached):
    before = all_of(cached.folders)
    stamp = os.stat(cached.folders["triton"] + "/top.json").st_mtime_ns
    name = clear(cached)["snapshot"]
    done = cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)
    assert all_of(cached.folders) == before == kept(cached, name)
    assert (done["snapshot"], done["files"]) == (name, 6)
    assert os.stat(cached.folders["triton"] + "/top.json").st_mtime_ns == stamp
    Path(cached.folders["triton"], "top.json").write_text("written in place")
    assert kept(cached, name) == before
    assert cached.call(snapshots.list_snapshots)["seeded"]["snapshot"] == name
    second = clear(cached)["snapshot"]
    listed = {row["name"]: row["manifest"] for row in cached.call(snapshots.list_snapshots)["snapshots"]}
    assert listed[second]["seeded"]["snapshot"] == name and listed[name]["seeded"] is None


@pytest.mark.parametrize("damage", ["changed", "missing", "files.json"])
def test_a_damaged_snapshot_is_refused_by_the_name_of_the_file(cached, damage):
    name = clear(cached)["snapshot"]
    folder = cached.base / "caches" / "snapshots" / name
    file = folder / "inductor" / "aa" / "bb" / "kernel.so"
    if damage == "changed":
        file.write_text("cold inductor")
    elif damage == "missing":
        file.unlink()
    else:
        file = folder / "files.json"
        file.write_text("{}")
    expected = "files.json" if damage == "files.json" else "inductor/aa/bb/kernel.so"
    if damage != "files.json":
        assert cached.call(snapshots.snapshot_verify, name=name) == {"damaged": [expected]}
    with pytest.raises(OpError, match=expected) as caught:
        cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)
    assert caught.value.kind == "damaged" and not any(map(os.path.exists, cached.folders.values()))


def make_fifo(path):
    path.unlink()
    os.mkfifo(path)


def make_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def grow(path):
    os.truncate(path, 1 << 40)  # which nobody shall read


def retell(path):
    told = json.loads(path.read_text())
    told["folders"]["inductor"] = {}
    path.write_text(json.dumps(told))


PLANTED = {
    "a pipe": (make_fifo, "inductor/aa/bb/kernel.so"),
    "a pipe for files.json": (make_fifo, "files.json"),
    "a link for a folder": (make_link, "inductor"),
    "a terabyte": (grow, "inductor/aa/bb/kernel.so"),
    "sizes of nothing": (retell, "manifest.json"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_in_a_snapshot_holds_up_nobody(cached, what):
    """Were a pipe opened to be read, this would wait until the suite's deadline."""
    name = clear(cached)["snapshot"]
    folder = cached.base / "caches" / "snapshots" / name
    plant, victim = PLANTED[what]
    plant(folder / victim)
    if victim == "inductor/aa/bb/kernel.so":
        assert cached.call(snapshots.snapshot_verify, name=name) == {"damaged": [victim]}
    else:
        with pytest.raises(OpError, match=name) as caught:
            cached.call(snapshots.snapshot_verify, name=name)
        assert caught.value.kind == "damaged"
    with pytest.raises(OpError) as caught:
        cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)
    assert caught.value.kind == "damaged" and not any(map(os.path.exists, cached.folders.values()))
    fill(cached.folders)
    saved = cached.call(cache_save.cache_save, name="now", folders=cached.folders)
    assert saved["files"] == 6 and cached.call(snapshots.snapshot_verify, name="now") == {"damaged": []}


def test_what_was_added_is_told_whatever_its_name_or_kind(cached):
    os.mkfifo(Path(cached.folders["triton"], "pipe"))
    done = clear(cached)
    folder = cached.base / "caches" / "snapshots" / done["snapshot"] / "triton"
    assert cached.call(snapshots.snapshot_verify, name=done["snapshot"]) == {"damaged": []}
    os.mkfifo(folder / "another")
    (folder / "a\nb").touch()
    damaged = cached.call(snapshots.snapshot_verify, name=done["snapshot"])["damaged"]
    assert damaged == ["triton/a\nb", "triton/another"]


def test_a_seed_cut_short_anywhere_can_be_done_again(cached):
    before = all_of(cached.folders)
    name = clear(cached)["snapshot"]
    step = 0
    while die_at(step, lambda: cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)):
        clear(cached)
        cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)
        assert all_of(cached.folders) == before == kept(cached, name)
        assert not list(cached.base.rglob("*.orch-seeding"))
        clear(cached)
        step += 1
    assert step > 10


def test_what_would_be_refused_is_told_before_anything_is_done(cached, tmp_path):
    name = clear(cached)["snapshot"]
    check = cache_seed.cache_check
    assert cached.call(check, folders=cached.folders, seed=name) == {}
    assert cached.call(check, folders=cached.folders, seed=None) == {}
    for change, kind in (({"inductor": str(tmp_path / "link")}, "bad_folder"), ({"triton": None}, "other_layout")):
        (tmp_path / "link").is_symlink() or (tmp_path / "link").symlink_to(tmp_path)
        folders = {key: path for key, path in {**cached.folders, **change}.items() if path}
        with pytest.raises(OpError) as caught:
            cached.call(check, folders=folders, seed=name)
        assert caught.value.kind == kind


def test_a_seed_does_not_replace_what_is_there(cached):
    name = clear(cached)["snapshot"]
    fill(cached.folders, "new")
    with pytest.raises(OpError) as caught:
        cached.call(cache_seed.cache_seed, name=name, folders=cached.folders)
    assert caught.value.kind == "not_empty"


def test_a_name_cannot_lead_elsewhere(cached):
    for name in ("../../runs", "", ".making-x", "/etc", None):
        with pytest.raises(OpError) as caught:
            cached.call(snapshots.snapshot_verify, name=name)
        assert caught.value.kind == "bad_request"
    assert records.is_run_id("20261129-100000-aaaa")
