"""The journal of a target: what each changing op writes, and what is left when one dies in the middle."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from orchestrator.agent.far import journal, lease, releases, stop
from orchestrator.agent.far.channel import Channel
from orchestrator.agent.far.errors import OpError
from tests.run_place import GRACEFUL, TRAINING, ready

BEGIN_AND_HANG = """
import sys, time
from orchestrator.agent.far import journal
with journal.begin(sys.argv[1], "reset", "ann@laptop", {"run_id": "r1"}):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def base(tmp_path):
    return str(tmp_path)


def lines(base):
    return [json.loads(line) for line in open(os.path.join(base, "journal.jsonl"), encoding="ascii")]


def phases(base):
    return [(line["op"], line["phase"]) for line in lines(base)]


def entries(base, **params):
    return journal.journal_entries(dict(params, base=base), b"", Channel(1, lambda header, body: None))["entries"]


def begin_elsewhere(base):
    child = subprocess.Popen([sys.executable, "-c", BEGIN_AND_HANG, base], stdout=subprocess.PIPE, cwd=os.getcwd())
    assert child.stdout.readline() == b"begun\n"
    return child


def kill(child):
    child.kill()
    child.wait()
    child.stdout.close()


def test_what_ended_is_told(base):
    with journal.begin(base, "reset", "ann@laptop", {"run_id": "r1"}) as entry:
        assert phases(base) == [("reset", "begin")], "before anything is changed"
        entry.note(freed=3)
    with pytest.raises(OpError), journal.begin(base, "reset", "ann@laptop", {}):
        raise OpError("busy", "a run is live")
    assert phases(base) == [("reset", phase) for phase in ("begin", "done", "begin", "failed")]
    first, second = lines(base)[0:2]
    assert (first["id"], first["who"], first["host"]) == (second["id"], "ann", "laptop")
    assert second["detail"] == {"run_id": "r1", "freed": 3} and second["at"] >= first["at"]
    assert lines(base)[3]["detail"] == {"error": "a run is live"}
    assert journal.unfinished(base) == []
    assert os.stat(os.path.join(base, "journal.jsonl")).st_mode & 0o777 == 0o600


def test_a_crash_in_the_middle_leaves_the_begin_line_until_a_later_success(base):
    child = begin_elsewhere(base)
    assert journal.unfinished(base) == [], "somebody is at it"
    kill(child)
    (left,) = journal.unfinished(base)
    assert (left["op"], left["who"], left["host"], left["phase"]) == ("reset", "ann", "laptop", "begin")
    with journal.begin(base, "stop", "ann@laptop", {}):
        pass
    with pytest.raises(OSError), journal.begin(base, "reset", "ann@laptop", {}):
        raise OSError(errno.EIO, "no")
    assert journal.unfinished(base) == [left], "neither something else nor a failure puts it right"
    with journal.begin(base, "reset", "bob@desk", {}):
        pass
    assert journal.unfinished(base) == []


def test_a_torn_line_is_read_over(base):
    child = begin_elsewhere(base)
    kill(child)
    path = os.path.join(base, "journal.jsonl")
    with open(path, "r+b") as stream:
        stream.write(stream.read()[:40])
    assert len(journal.unfinished(base)) == 1
    with journal.begin(base, "reset", "ann@laptop", {}):
        pass
    assert len(entries(base)) == 3 and journal.unfinished(base) == []
    with open(path, "ab") as stream:
        stream.write(b'\xff\n[]\n{"id": 1}\n{"id": "x", "op": "y", "phase": "begin", "detail": {}, "by": 7}\n')
        stream.write(b'{"id": ["x"], "op": "y", "phase": "begin", "detail": {}}\n' + b"[" * 100_000 + b"\n")
    assert [line["id"] for line in journal.unfinished(base)] == ["x"]


def test_it_is_put_aside_and_keeps_what_is_not_finished(base, monkeypatch):
    monkeypatch.setattr(journal, "MAX_BYTES", 2000)
    kill(begin_elsewhere(base))
    (left,) = journal.unfinished(base)
    for number in range(40):
        with journal.begin(base, "stop", "ann@laptop", {"run_id": str(number)}):
            pass
        assert journal.unfinished(base) == [left], number
    for name in ("journal.jsonl", "journal.1.jsonl"):
        assert 0 < os.path.getsize(os.path.join(base, name)) < 3000
    assert [line["phase"] for line in entries(base, run_id="39")] == ["begin", "done"]
    assert entries(base)[0]["id"] == left["id"]


def test_writers_at_once_lose_nothing(base, monkeypatch):
    monkeypatch.setattr(journal, "MAX_BYTES", 60_000)

    def work(name):
        for number in range(25):
            with journal.begin(base, "stop", "ann@laptop", {"run_id": f"{name}-{number}"}):
                pass

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = {line["id"] for line in entries(base) if line["phase"] == "done"}
    assert len(ended) == 150 and journal.unfinished(base) == []


def test_what_cannot_be_written_is_not_begun(base, monkeypatch):
    with journal.begin(base, "stop", "ann@laptop", {}):
        pass
    before = lines(base)
    written = os.write

    def full(handle, data):
        written(handle, bytes(data[:10]))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        journal.begin(base, "launch", "ann@laptop", {})
    with journal.begin(base, "stop", "ann@laptop", {}, required=False):
        pass
    monkeypatch.undo()
    assert lines(base) == before


def test_an_endless_detail_is_cut(base):
    with journal.begin(base, "reset", "ann@laptop", {"run_id": "r1", "pids": list(range(20_000))}):
        pass
    assert os.path.getsize(os.path.join(base, "journal.jsonl")) < 2000
    assert [line["phase"] for line in entries(base, run_id="r1")] == ["begin", "done"]


def test_work_of_the_controller_is_written_by_two_ops_under_the_lease(base):
    channel = Channel(1, lambda header, body: None)
    with pytest.raises(OpError, match="lease"):
        journal.journal_begin({"base": base, "operation": "reset"}, b"", channel)
    lease.lease_acquire({"base": base, "who": "ann", "host": "laptop", "pid": 7}, b"", channel)
    try:
        begun = journal.journal_begin({"base": base, "operation": "reset", "detail": {"gpus": [0]}}, b"", channel)
        journal.journal_end({"id": begun["id"], "phase": "done", "detail": {"killed": 1}}, b"", channel)
    finally:
        lease.lease_release({"base": base}, b"", channel)
    assert [(line["who"], line["phase"], line["detail"]) for line in lines(base)] == [
        ("ann", "begin", {"gpus": [0]}),
        ("ann", "done", {"gpus": [0], "killed": 1}),
    ]


def test_launch_and_stop_are_in_it(place):
    answer = place.start(GRACEFUL, spec={"launched_by": "ann@laptop"})
    ready(place, answer)
    place.call(stop.stop_run, run_id=None, wait_s=20, who="bob@desk")
    base = str(place.base)
    assert phases(base) == [("launch", "begin"), ("launch", "done"), ("stop", "begin"), ("stop", "done")]
    assert [(line["who"], line["host"]) for line in lines(base)[1:3]] == [("ann", "laptop"), ("bob", "desk")]
    assert {line["detail"]["run_id"] for line in lines(base)} == {answer["run_id"]}
    place.call(stop.stop_run, run_id=None, wait_s=1)
    assert len(lines(base)) == 4, "nothing was there to be stopped"


def test_a_refused_launch_changes_nothing_and_says_nothing(place):
    place.start(TRAINING)
    before = lines(str(place.base))
    assert place.start(TRAINING)["reason"] == "busy"
    assert lines(str(place.base)) == before


def test_an_op_whose_agent_was_killed_shows_in_the_facts(place):
    place.base.mkdir()
    child = begin_elsewhere(str(place.base))
    assert place.facts()[0]["unfinished"] is None
    child.send_signal(signal.SIGKILL)
    kill(child)
    assert place.facts()[0]["unfinished"]["op"] == "reset"


def test_only_a_switch_that_changes_something_is_in_it(tmp_path):
    base, channel = str(tmp_path), Channel(1, lambda header, body: None)
    for name in ("a" * 64, "b" * 64):
        (tmp_path / "releases" / name).mkdir(parents=True)
        (tmp_path / "releases" / f"{name}.json").write_text('{"pushed_at": 1, "entries": []}')
    lease.lease_acquire({"base": base, "who": "ann", "host": "laptop", "pid": 7}, b"", channel)
    try:
        for name in ("a", "b", "b"):
            releases.switch_current({"base": base, "tree_hash": name * 64}, b"", channel)
        releases.prune_releases({"base": base, "keep": 0, "in_use": []}, b"", channel)
        (tmp_path / "previous").unlink()
        releases.prune_releases({"base": base, "keep": 0, "in_use": []}, b"", channel)
    finally:
        lease.lease_release({"base": base}, b"", channel)
    assert phases(base) == [(op, phase) for op in ("switch", "switch", "prune") for phase in ("begin", "done")]
    assert lines(base)[3]["detail"] == {"release": "b" * 64, "from": "a" * 64}
    assert lines(base)[4]["detail"] == {"releases": ["a" * 64]}
