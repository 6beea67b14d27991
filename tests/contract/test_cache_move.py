"""A snapshot goes from one place that keeps snapshots to another, through two real agents that a test can kill."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.snapshot_relay import SnapshotRelay
from orchestrator.cli.main import main
from orchestrator.errors import OutcomeUnknownError
from tests.local_agent import LocalStarter

MEGABYTE = 1_000_000
SOME = 5


class Keeper:
    """A base with live caches, snapshots, and an agent that holds the lease."""

    def __init__(self, base):
        self.base = str(base)
        self.folders = {kind: f"{self.base}/caches/live/{kind}" for kind in ("inductor", "triton")}
        self.snapshots = Path(self.base, "caches", "snapshots")

    def fill(self, *, seed=0, files=30, size=60_000):
        rng = random.Random(seed)
        for number in range(files):
            path = Path(self.folders["inductor"], f"{number % 7:02}", f"graph{number}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(size) if number % 5 else b"same everywhere")
            path.chmod(0o755 if number % 3 == 0 else 0o644)
            os.utime(path, ns=(1, 1_700_000_000_123_456_789 + number))
        Path(self.folders["triton"]).mkdir(parents=True, exist_ok=True)
        Path(self.folders["triton"], "empty").write_bytes(b"")
        with contextlib.suppress(FileExistsError):
            Path(self.folders["triton"], "link").symlink_to("empty")

    @contextlib.asynccontextmanager
    async def agent(self):
        self.starter = LocalStarter()
        async with await AgentSession.open(self.starter, pythons=[sys.executable]) as session:
            await session.request("lease_acquire", base=self.base, who="me", host="here", pid=1)
            yield session

    def ask(self, op, **params):
        async def ask():
            async with self.agent() as session:
                return (await session.request(op, base=self.base, **params)).header

        return asyncio.run(ask())

    def save(self, name):
        return self.ask("cache_save", name=name, folders=self.folders, who="me@here")

    def whole(self, name):
        return self.ask("snapshot_verify", name=name) == {"damaged": []}

    def arrived(self):
        """Contents that are whole, of a transfer that is not."""
        return sum(1 for path in (self.snapshots / ".incoming" / "blobs").glob("*") if path.name != "part")

    def kill(self):
        os.killpg(self.starter.processes[0].pid, signal.SIGKILL)


def move(source, sink, name, *, new_name=None, cut_at_bytes=None):
    """The relay as it was used. cut_at_bytes: the taking agent is killed once so much was to be sent to it, and some
    contents of it have arrived."""

    async def run():
        async with source.agent() as giving, sink.agent() as taking:
            if cut_at_bytes is not None:
                process = sink.starter.processes[0]
                write, sent = process.write, [0]

                async def counting(data):
                    sent[0] += len(data)
                    if sent[0] > cut_at_bytes:
                        async with asyncio.timeout(60):
                            while sink.arrived() <= SOME:
                                await asyncio.sleep(0.005)
                        sink.kill()
                    await write(data)

                process.write = counting
            relay = SnapshotRelay(giving, taking, None)
            await relay.describe(source.base, name)
            await relay.run(sink.base, new_name or name, moved={"from": "a test"}, who="me@here")
            return relay

    return asyncio.run(run())


def contents(folder):
    """Every name below it: target, or content, mode and time."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        facts = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file() and path.name not in ("manifest.json", "files.json"):
            found[str(path.relative_to(folder))] = (path.read_bytes(), facts.st_mode & 0o777, facts.st_mtime_ns)
    return found


@pytest.fixture
def two(tmp_path):
    source, sink = Keeper(tmp_path / "a"), Keeper(tmp_path / "b")
    source.fill()
    source.save("nightly")
    return source, sink


def test_it_arrives_byte_by_byte_with_modes_and_times_and_seeds(two):
    source, sink = two
    before = contents(source.snapshots / "nightly")
    done = move(source, sink, "nightly")
    assert contents(sink.snapshots / "nightly") == before and sink.whole("nightly")
    assert (done.contents_sent, done.linked, done.already_there) == (26, 0, False)
    sink.ask("cache_seed", name="nightly", folders=sink.folders)
    for kind in source.folders:
        assert contents(sink.folders[kind]) == contents(source.folders[kind])
    row = sink.ask("list_snapshots")
    assert row["snapshots"][0]["manifest"]["moved"] == {"from": "a test"} and row["arriving"] == []
    assert os.listdir(sink.snapshots / ".incoming") == ["lock"]
    back = move(sink, source, "nightly", new_name="back")
    assert (back.contents_sent, back.linked) == (0, 31), "what is kept already need not travel"


def test_what_is_there_already_is_not_sent_again(two):
    source, sink = two
    move(source, sink, "nightly")
    again = move(source, sink, "nightly")
    assert again.already_there and again.contents_sent == 0
    Path(source.folders["inductor"], "03", "graph3").write_bytes(os.urandom(60_000))
    os.utime(Path(source.folders["inductor"], "01", "graph8"), ns=(1, 1))  # the same content at another time
    source.save("later")
    before = {path: path.stat().st_mtime_ns for path in (sink.snapshots / "nightly").rglob("*")}
    later = move(source, sink, "later")
    assert (later.contents_sent, later.linked) == (1, 29) and later.bytes_sent < 70_000
    assert contents(sink.snapshots / "later") == contents(source.snapshots / "later") and sink.whole("nightly")
    assert {path: path.stat().st_mtime_ns for path in (sink.snapshots / "nightly").rglob("*")} == before
    one, other = (sink.snapshots / name / "inductor" / "01" / "graph1" for name in ("nightly", "later"))
    assert one.samefile(other)


@pytest.mark.parametrize("how", ["taken", "cut clear", "name"])
def test_it_is_refused_and_changes_nothing(two, how):
    source, sink = two
    sink.fill(seed=1)
    sink.save("nightly")
    name, kind = {"taken": ("nightly", "conflict"), "cut clear": ("cut", "conflict"), "name": ("../x", "bad_request")}[
        how
    ]
    (sink.snapshots / ".making-cut").mkdir()
    before = contents(sink.base)
    with pytest.raises(AgentOpError) as caught:
        move(source, sink, "nightly", new_name=name)
    assert caught.value.kind == kind
    after = contents(sink.base)
    assert {path for path in after if before.get(path) != after[path]} <= {"lease.lock", "journal.jsonl"}


def test_a_damaged_copy_is_refused_by_the_name_of_the_file(two):
    source, sink = two
    victim = source.snapshots / "nightly" / "inductor" / "01" / "graph1"
    victim.write_bytes(bytes(60_000))
    with pytest.raises(AgentOpError, match="inductor/01/graph1") as caught:
        move(source, sink, "nightly")
    assert caught.value.kind == "damaged" and sink.ask("list_snapshots")["snapshots"] == []
    victim.unlink()
    for plant in (lambda: None, lambda: os.mkfifo(victim)):  # whose opening waits for a writer
        plant()
        with pytest.raises(AgentOpError, match="graph1") as caught:
            move(source, sink, "nightly")
        assert caught.value.kind in ("damaged", "changed") and sink.ask("list_snapshots")["snapshots"] == []


def test_a_damaged_file_over_there_is_not_linked(two):
    source, sink = two
    move(source, sink, "nightly")
    victim = sink.snapshots / "nightly" / "inductor" / "01" / "graph1"
    facts = victim.stat()
    victim.write_bytes(bytes(60_000))
    os.utime(victim, ns=(facts.st_mtime_ns,) * 2)
    again = move(source, sink, "nightly", new_name="again")
    assert (again.contents_sent, again.linked) == (1, 30) and sink.whole("again") and not sink.whole("nightly")


def test_a_transfer_that_is_cut_is_said_to_be_incomplete_and_goes_on(two):
    source, sink = two
    with pytest.raises(OutcomeUnknownError):
        move(source, sink, "nightly", cut_at_bytes=MEGABYTE)
    listed = sink.ask("list_snapshots")
    assert (listed["snapshots"], listed["arriving"]) == ([], ["nightly"])
    arrived = sink.arrived()
    assert SOME < arrived < 26
    done = move(source, sink, "nightly")
    assert done.contents_sent == 26 - arrived and sink.whole("nightly")
    assert contents(sink.snapshots / "nightly") == contents(source.snapshots / "nightly")


def test_what_has_come_of_a_cut_one_can_be_dropped(two):
    source, sink = two
    with pytest.raises(OutcomeUnknownError):
        move(source, sink, "nightly", cut_at_bytes=MEGABYTE)
    sink.ask("cache_drop", name="nightly")
    assert os.listdir(sink.snapshots) == [] and sink.ask("list_snapshots")["arriving"] == []


def test_a_word_after_here_is_a_name_where_it_can_be_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for verb in ("drop", "verify"):
        assert main(["cache", verb, "--here", "nightly"]) == 2
        assert "'nightly'" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    for folder in ([], [f"{tmp_path}"], ["."]):
        assert main(["cache", "verify", "--here", *folder]) == 0


@pytest.mark.parametrize("verb", ["list", "verify", "drop"])
def test_a_folder_that_is_not_there_is_told(verb, tmp_path, capsys):
    name = ["--keep", "1"] if verb == "drop" else []
    assert main(["cache", verb, *name, "--here", f"{tmp_path}/nosuch"]) == 2
    assert f"there is no folder {tmp_path}/nosuch" in capsys.readouterr().err
