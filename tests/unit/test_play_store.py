"""The records of plays on the controller: private, on disk line by line, one play of a playbook at a time."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import BusyError, OrchError
from orchestrator.playbook import store as module
from orchestrator.playbook.store import PlayStore


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_second_play_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    with PlayStore(tmp_path / "nightly.yaml") as store:
        store.say_holder("play p1, me@here, pid 42")
        with pytest.raises(BusyError) as caught, PlayStore(tmp_path / "nightly.yaml"):
            pass
        assert caught.value.evidence == "play p1, me@here, pid 42"
        with PlayStore(tmp_path / "other" / "nightly.yaml"):
            pass  # another file of the same name
    with PlayStore(tmp_path / "nightly.yaml"):
        pass


HOLDER = """
import pathlib, subprocess, sys
from orchestrator.playbook.store import PlayStore
PlayStore(pathlib.Path(sys.argv[1])).__enter__()
child = subprocess.Popen(["sleep", "30"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_the_lock_goes_with_its_process_and_not_to_its_children(tmp_path: Path) -> None:
    playbook = tmp_path / "nightly.yaml"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, playbook], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(BusyError), PlayStore(playbook):
            pass
        holder.kill()
        holder.wait()
        with PlayStore(playbook):
            os.kill(child, 0)  # what it had started lives on
    finally:
        os.kill(child, signal.SIGKILL)


def test_records_are_private_and_the_newest_is_the_latest(tmp_path: Path) -> None:
    with PlayStore(tmp_path / "nightly.yaml") as store:
        assert store.latest() == []
        store.record("20261130-020000000-aaaa").append({"what": "play", "play": "a"})
        record = store.record("20261130-020000001-0000")
        record.append({"what": "play", "play": "b"})
        record.append({"what": "over"})
        assert [json.loads(line)["what"] for line in store.latest()] == ["play", "over"]
        modes = {stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()}
        assert modes == {0o600} and stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_a_line_behind_a_torn_one_is_whole(tmp_path: Path) -> None:
    with PlayStore(tmp_path / "nightly.yaml") as store:
        record = store.record("p")
        record.append({"what": "play"})
        with record.path.open("ab") as stream:
            stream.write(b'{"what":"beg')
        record.append({"what": "continued"})
        assert [line for line in store.latest() if line.startswith(b'{"what":"cont')]


def test_old_records_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    with PlayStore(tmp_path / "nightly.yaml") as store:
        for name in "abcd":
            store.record(name).append({"what": "play"})
        assert sorted(path.stem for path in store.folder.glob("*.jsonl")) == ["b", "c", "d"]


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    store = PlayStore(tmp_path / "nightly.yaml")
    store.folder.mkdir(parents=True, mode=0o755)
    with pytest.raises(OrchError, match="only you can enter"), store:
        pass


def test_a_record_that_cannot_be_written_stops_the_play(tmp_path: Path) -> None:
    with PlayStore(tmp_path / "nightly.yaml") as store:
        record = store.record("p")
        record.path.mkdir()
        with pytest.raises(OrchError, match="the play stops here"):
            record.append({"what": "play"})


def test_records_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    store = PlayStore(tmp_path / "nightly.yaml")
    with store:
        (store.folder / "20261130-020000000-aaaa.jsonl").mkdir()
        with pytest.raises(OrchError, match="jsonl cannot be opened; nothing was begun"):
            store.latest()
    (store.folder / "lock").unlink()
    (store.folder / "lock").mkdir()
    with pytest.raises(OrchError, match="lock cannot be opened; nothing was begun"), store:
        pass
