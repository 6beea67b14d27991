"""What is counted in a compile cache, and what is not."""

import os

from orchestrator.agent.far import cache
from orchestrator.agent.far.channel import Channel
from orchestrator.probes.compile_cache import parse_cache_stats
from tests.waiting import eventually


def write(path, size=10, mtime=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    if mtime is not None:
        os.utime(path, (mtime, mtime))


def inductor(top):
    for key in ("aa/k1", "aa/k2", "bb/k3"):
        write(top / "fxgraph" / key / "entry", 100, 1000)
    write(top / "fxgraph" / "aa" / "k1" / "deep" / "er" / "x", 1, 1000)
    write(top / "aotautograd" / "k9" / "entry", 50, 3000)
    write(top / "x" / "fxgraph" / "aa" / "k1" / "entry", 7, 2000)
    return top


def measured(**folders):
    return cache.measure({name: str(path) for name, path in folders.items()})


def test_bytes_files_graphs_and_the_newest(tmp_path):
    top = inductor(tmp_path / "inductor")
    (top / "link").symlink_to("/usr")
    (top / "fxgraph" / "zz").symlink_to(top / "fxgraph" / "aa")
    found = measured(TORCHINDUCTOR_CACHE_DIR=top)["TORCHINDUCTOR_CACHE_DIR"]
    assert (found["bytes"], found["files"], found["entries"]) == (358, 6, 3)
    assert (found["newest_mtime"], found["complete"], found["unreadable"]) == (3000, True, 0)


def test_a_cache_may_be_a_link_itself_empty_or_not_there(tmp_path):
    inductor(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "triton" / "HASH" / "kernel.cubin")
    found = measured(
        inductor=tmp_path / "link", inductor_2=tmp_path / "empty", triton=tmp_path / "triton", no=tmp_path / "no"
    )
    assert found["inductor"]["entries"] == 3
    assert (found["inductor_2"]["bytes"], found["inductor_2"]["entries"]) == (0, 0)
    assert (found["triton"]["files"], found["triton"]["entries"]) == (1, None)
    assert (found["no"]["exists"], found["no"]["bytes"], found["no"]["entries"]) == (False, None, None)


def test_the_walk_stops_and_says_so(tmp_path):
    for number in range(30):
        write(tmp_path / "a" / str(number))
        write(tmp_path / "b" / str(number))
    found = cache.measure({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}, max_files=40)
    assert [(f["files"], f["complete"]) for f in found.values()] == [(30, True), (10, False)]
    found = cache.measure({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}, max_files=10)
    assert not found["a"]["complete"] and not found["b"]["complete"]


def test_what_vanishes_under_the_walk_is_no_matter(tmp_path, monkeypatch):
    inductor(tmp_path)
    whole = os.scandir

    def vanishing(path):
        if str(path).endswith("k1"):
            raise FileNotFoundError(path)
        if str(path).endswith("aotautograd"):
            raise PermissionError(path)
        return whole(path)

    monkeypatch.setattr(cache.os, "scandir", vanishing)
    found = measured(inductor=tmp_path)["inductor"]
    assert (found["files"], found["unreadable"]) == (2, 1)


def test_the_op_and_its_parser_agree(tmp_path):
    top = inductor(tmp_path / "cache")
    params = {"folders": {"TORCHINDUCTOR_CACHE_DIR": str(top), "TRITON_CACHE_DIR": str(top / "fxgraph")}}
    read = parse_cache_stats(cache.cache_stats(params, b"", Channel(1, lambda header, body: None)))
    assert read is not None and read.complete and read.newest_at == 3000
    assert [folder.files for folder in read.folders] == [6, 4]
    assert (read.bytes, read.entries) == (358, 3), "a folder within the other is counted once"


def test_what_is_new_is_told_by_the_time_that_nobody_can_set(tmp_path):
    top = inductor(tmp_path / "inductor")
    since = _after_all_of(top)
    write(top / "fxgraph" / "cc" / "k4" / "entry", 10, mtime=1000)
    write(top / "zz" / "code.py", 10, mtime=1000)
    write(top / "locks" / "k4.lock", 0)
    found = cache.measure({"TORCHINDUCTOR_CACHE_DIR": str(top)}, since=since)["TORCHINDUCTOR_CACHE_DIR"]
    assert (found["new_files"], found["new_graphs"], found["files"]) == (2, 1, 9)
    assert "new_files" not in measured(TORCHINDUCTOR_CACHE_DIR=top)["TORCHINDUCTOR_CACHE_DIR"]
    both = {name: dict(found, path=path) for name, path in (("A", "/a"), ("B", "/b"), ("C", "/a/x"))}
    counted = parse_cache_stats({"folders": both})
    assert (counted.new_files, counted.new_graphs) == (4, 2)  # what lies within another is counted once


def _after_all_of(top):
    """A time after what is there and before what comes next: a file's time is that of the last tick of the clock."""
    latest = max(os.lstat(path).st_ctime for path in top.rglob("*"))
    probe = top.parent / "probe"

    def ticked():
        probe.write_bytes(b"")
        return os.stat(probe).st_ctime > latest

    eventually(ticked, "the clock goes on")
    return os.stat(probe).st_ctime
