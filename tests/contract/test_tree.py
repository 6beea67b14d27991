"""Trees really move between two folders of this machine, through a real agent."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent import tree_push
from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.far import blobs
from orchestrator.agent.far.manifest import Entry, pack, tree_hash
from orchestrator.agent.tree import describe_git, pull_tree, push_tree, scan_folder, scan_git_revision, switch_current
from orchestrator.errors import BusyError, OutcomeUnknownError, TransferError, UnreachableError, UsageError
from tests.local_agent import LocalStarter, interpreters


@contextlib.asynccontextmanager
async def open_agent(python=sys.executable, *, cut_after=None):
    """cut_after: kill the agent once that many frames went to it."""
    starter = LocalStarter()
    session = await AgentSession.open(starter, pythons=[python])
    process = starter.processes[0]
    if cut_after is not None:
        write, left = process.write, [cut_after]

        async def counting_write(data):
            left[0] -= 1
            if left[0] < 0:
                os.killpg(process.pid, signal.SIGKILL)
            await write(data)

        process.write = counting_write
    try:
        yield session
    finally:
        await session.close()


def make_tree(folder, seed=0, files=12):
    rng = random.Random(seed)
    (folder / "pkg" / "deep").mkdir(parents=True)
    (folder / "empty_folder").mkdir()
    (folder / "empty").write_bytes(b"")
    for number in range(files):
        (folder / "pkg" / f"f{number}.bin").write_bytes(rng.randbytes(rng.randrange(1, 9000)))
    (folder / "pkg" / "text.py").write_text("print('hello')\n" * 3000)
    (folder / "pkg" / "twin.py").write_text("print('hello')\n" * 3000)
    (folder / "pkg" / "deep" / "ä b'$x").write_text("odd name")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "twin.sh").write_text("print('hello')\n" * 3000)
    (folder / "twin.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg/deep")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"no")
    return folder


def snapshot(folder):
    """Everything that can be seen of a folder, times included."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_ino)
        for path in sorted(folder.rglob("*"))
    }


def contents(folder):
    return {
        str(path.relative_to(folder)): (
            os.readlink(path)
            if path.is_symlink()
            else "dir"
            if path.is_dir()
            else (path.read_bytes(), path.stat().st_mode & 0o777)
        )
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in str(path)
    }


def expected(folder):
    found = contents(folder)
    found["run.sh"] = (found["run.sh"][0], 0o755)
    return found


@pytest.fixture
def source(tmp_path):
    return make_tree(tmp_path / "source")


@pytest.fixture
def store(tmp_path):
    return tmp_path / "orch" / "releases"


async def lease(session, store):
    await session.request("lease_acquire", base=str(store.parent), who="t", host="h", pid=1)


@pytest.mark.parametrize("python", interpreters())
async def test_first_push_then_nothing_then_one_file(python, source, store):
    seen = []
    async with open_agent(python) as session:
        first = await push_tree(session, scan_folder(source), str(store), on_progress=seen.append)
        assert Path(first.path) == store / first.tree_hash
        assert contents(Path(first.path)) == expected(source)
        assert not first.already_there and first.files_sent == 16
        assert seen[-1].bytes_done == seen[-1].bytes_total == first.bytes_sent
        assert seen[-1].files_done == seen[-1].files_total == first.files_sent
        assert [path.name for path in (store / ".incoming").iterdir()] == ["lock"]

        before = snapshot(store)
        again = await push_tree(session, scan_folder(source), str(store))
        assert again.already_there and again.bytes_sent == 0 and again.tree_hash == first.tree_hash
        assert snapshot(store) == before

        (source / "run.sh").write_text("#!/bin/sh\necho new\n")
        second = await push_tree(session, scan_folder(source), str(store))
        assert (second.files_sent, second.bytes_sent) == (1, len("#!/bin/sh\necho new\n"))
        assert second.bytes_copied > 0
        assert contents(Path(second.path)) == expected(source)
        # Two releases share no file: an edit in place must not reach the other one.
        inodes = [{p.stat().st_ino for p in Path(r.path).rglob("*") if p.is_file()} for r in (first, second)]
        assert not inodes[0] & inodes[1]


async def test_switch_needs_the_lease_keeps_the_previous_and_is_relative(source, store):
    base = store.parent
    async with open_agent() as session:
        first = await push_tree(session, scan_folder(source), str(store))
        with pytest.raises(TransferError, match="lease"):
            await switch_current(session, str(base), first.tree_hash)
        await lease(session, store)
        assert (await switch_current(session, str(base), first.tree_hash)).previous is None
        (source / "new").write_text("x")
        second = await push_tree(session, scan_folder(source), str(store))
        assert (await switch_current(session, str(base), second.tree_hash)).previous == first.tree_hash
        assert os.readlink(base / "current") == f"releases/{second.tree_hash}"
        assert (base / "previous").resolve() == Path(first.path)
        assert (await switch_current(session, str(base), second.tree_hash)).previous == first.tree_hash
        back = await switch_current(session, str(base), first.tree_hash)
        assert (back.current, back.previous) == (first.tree_hash, second.tree_hash)
        with pytest.raises(TransferError, match="no complete release"):
            await switch_current(session, str(base), "0" * 64)
        with pytest.raises(TransferError, match="no complete release"):
            await switch_current(session, str(base), "../elsewhere")


async def test_an_edit_in_place_is_found(source, store):
    async with open_agent() as session:
        result = await push_tree(session, scan_folder(source), str(store))
        release = Path(result.path)

        async def verify():
            return (await session.request("tree_verify", path=result.path)).header

        assert await verify() == {"changed": [], "missing": [], "extra": []}
        (release / "pkg" / "__pycache__").mkdir()
        (release / "pkg" / "__pycache__" / "x.pyc").write_bytes(b"python makes these")
        assert await verify() == {"changed": [], "missing": [], "extra": []}
        text = (release / "pkg" / "text.py").read_bytes()
        (release / "pkg" / "text.py").write_bytes(text[:-1] + b"!")
        (release / "run.sh").chmod(0o644)
        (release / "empty").unlink()
        (release / "hack.py").symlink_to("/etc/hostname")
        os.mkfifo(release / "pipe")
        assert await verify() == {
            "changed": ["pkg/text.py", "run.sh"],
            "missing": ["empty"],
            "extra": ["hack.py", "pipe"],
        }


async def test_a_release_that_was_edited_in_place_is_made_anew_and_the_edit_kept(source, store):
    async with open_agent() as session:
        first = await push_tree(session, scan_folder(source), str(store), mend=True)
        release = Path(first.path)
        (release / "written.json").write_text("by a training")
        untouched = await push_tree(session, scan_folder(source), str(store), mend=True)
        assert untouched.already_there and untouched.kept is None and (release / "written.json").exists()

        (release / "run.sh").write_text("a cure")
        (release / "empty").unlink()
        left = await push_tree(session, scan_folder(source), str(store))
        assert left.already_there and (release / "run.sh").read_text() == "a cure", "only when it is asked for"
        again = await push_tree(session, scan_folder(source), str(store), mend=True)
        assert (again.path, again.mended, again.already_there) == (first.path, ("empty", "run.sh"), False)
        assert contents(release) == expected(source)
        assert again.kept is not None and (Path(again.kept) / "run.sh").read_text() == "a cure"
        assert (await push_tree(session, scan_folder(source), str(store), mend=True)).already_there


async def test_spoiled_content_in_an_old_release_is_not_copied(source, store):
    async with open_agent() as session:
        first = await push_tree(session, scan_folder(source), str(store))
        spoiled = Path(first.path) / "pkg" / "f0.bin"
        spoiled.write_bytes(bytes(len(spoiled.read_bytes())))
        (source / "new").write_text("x")
        second = await push_tree(session, scan_folder(source), str(store))
        assert second.files_sent == 2
        assert contents(Path(second.path)) == expected(source)


async def test_a_store_that_shares_keeps_once_what_several_trees_hold(tmp_path, store):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("kept", "spoiled"):
        (folder / name).write_text(name * 100)
    async with open_agent() as session:
        first = Path((await push_tree(session, scan_folder(folder), str(store), share=True)).path)
        (first / "spoiled").write_text("x" * 700)
        (folder / "new").write_text("new")
        pushed = await push_tree(session, scan_folder(folder), str(store), share=True)
        second = Path(pushed.path)
        assert pushed.files_sent == 2
        assert (second / "kept").samefile(first / "kept") and (first / "kept").stat().st_nlink == 2
        assert not (second / "spoiled").samefile(first / "spoiled")
        assert (second / "spoiled").read_text() == "spoiled" * 100
        (folder / "new").chmod(0o755)
        with pytest.raises(TransferError, match="a mode is one file's"):
            await push_tree(session, scan_folder(folder), str(store), share=True)


@pytest.mark.parametrize("frames", [0, 1, 2, 3, 5, 8, 13, 21, 34])
async def test_a_cut_leaves_the_live_release_and_the_next_push_sends_the_rest(frames, source, store, monkeypatch):
    monkeypatch.setattr(blobs, "FRAME_BYTES", 2048)
    async with open_agent() as session:
        old = await push_tree(session, scan_folder(source), str(store))
        await lease(session, store)
        await switch_current(session, str(store.parent), old.tree_hash)
    for number in range(12):
        (source / "pkg" / f"f{number}.bin").write_bytes(random.Random(100 + number).randbytes(6000))
    new = scan_folder(source)
    live = contents(Path(old.path))
    async with open_agent(cut_after=frames) as session:
        with contextlib.suppress(OutcomeUnknownError, UnreachableError):
            await push_tree(session, new, str(store))
    assert contents((store.parent / "current").resolve()) == live
    there = len(list((store / ".incoming" / "blobs").glob("?" * 64))) if (store / ".incoming" / "blobs").is_dir() else 0
    async with open_agent() as session:
        result = await push_tree(session, new, str(store))
        assert contents(Path(result.path)) == expected(source)
        assert (await session.request("tree_verify", path=old.path)).header["changed"] == []
        if not result.already_there:
            copied = 17 - 12
            assert result.files_sent <= 12
            assert there == 0 or result.files_sent <= 12 - max(0, there - copied)
    assert sorted(path.name for path in (store / ".incoming").iterdir()) == ["lock"]


KILLED_AT_A_CALL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from orchestrator.agent.far import blobs, manifest, tree_push
from pathlib import Path
from orchestrator.agent.tree_source import scan_folder
store, folder, fatal = sys.argv[2], sys.argv[3], int(sys.argv[4])
source = scan_folder(Path(folder))
calls = [0]
def counted(function):
    def call(*args, **more):
        calls[0] += 1
        if calls[0] == fatal:
            os._exit(9)
        return function(*args, **more)
    return call
for name in ("rename", "replace", "link", "mkdir", "symlink", "unlink", "rmdir", "chmod", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
class Channel:
    def check(self): pass
    def emit(self, data, body=b""):
        wanted = manifest.unique_blobs(source.entries)
        shas = [wanted[index][0] for index in manifest.json_unpack(body)]
        self.frames = blobs.pack_frames(source.read_blobs(shas))
    def receive(self):
        return next(self.frames)[:2]
params = {"store": store, "tree_hash": source.tree_hash, "provenance": {}, "lock_wait_s": 0}
tree_push.tree_push(params, manifest.pack(source.entries), Channel())
"""


async def test_killed_at_every_single_change_to_the_disk(tmp_path, store):
    """kill -9 just before the k-th change, for every k: the store holds whole releases and nothing else."""
    first, second = make_tree(tmp_path / "first", seed=1, files=2), make_tree(tmp_path / "second", seed=2, files=3)
    root = str(Path(__file__).parents[2])

    def push(folder, fatal):
        argv = [sys.executable, "-c", KILLED_AT_A_CALL, root, str(store), str(folder), str(fatal)]
        return subprocess.run(argv, timeout=60, stdout=subprocess.DEVNULL).returncode

    assert push(first, 0) == 0
    old = Path(store / scan_folder(first).tree_hash)
    new = Path(store / scan_folder(second).tree_hash)
    fatal = 0
    while True:
        fatal += 3 if fatal > 6 else 1  # every third is enough: the steps of one push differ from those of the next
        code = push(second, fatal)
        assert contents(old) == expected(first)
        if new.exists():
            assert contents(new) == expected(second)
            assert Path(f"{new}.json").exists()
        if code == 0:
            break
        assert code == 9
    assert fatal > 20
    assert contents(new) == expected(second)
    async with open_agent() as session:
        await push_tree(session, scan_folder(make_tree(tmp_path / "third", seed=3)), str(store))
    assert [path.name for path in (store / ".incoming").iterdir()] == ["lock"]


async def test_two_pushes_at_once(source, store, monkeypatch):
    monkeypatch.setattr(tree_push, "LOCK_WAIT_S", 0.3)
    async with open_agent() as first, open_agent() as second:
        listing = scan_folder(source)
        params = {"store": str(store), "tree_hash": listing.tree_hash, "provenance": {}, "lock_wait_s": 0}
        async with first.exchange("tree_push", body=pack(listing.entries), **params) as exchange:
            await exchange.receive()
            with pytest.raises(BusyError, match="another push"):
                await push_tree(second, listing, str(store))
        monkeypatch.setattr(tree_push, "LOCK_WAIT_S", 20)
        await push_tree(second, listing, str(store))
        assert (store / listing.tree_hash).is_dir()


async def test_what_cannot_be_sent_is_named(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    for name, target in (("abs", "/etc/hostname"), ("up", "../x")):
        (folder / name).symlink_to(target)
        with pytest.raises(TransferError) as error:
            scan_folder(folder)
        assert name in error.value.evidence
        (folder / name).unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(TransferError) as error:
        scan_folder(folder)
    assert "pipe" in error.value.evidence
    scan_folder(folder, ["pipe"])
    (folder / "pipe").unlink()
    with open(os.fsencode(folder) + b"/\xff", "w"):
        pass
    with pytest.raises(TransferError) as error:
        scan_folder(folder)
    assert "UTF-8" in error.value.evidence
    with pytest.raises(TransferError):
        scan_folder(tmp_path / "absent")


async def test_a_file_that_changes_between_scan_and_push(source, store):
    listing = scan_folder(source)
    victim = source / "pkg" / "f0.bin"
    size = victim.stat().st_size
    async with open_agent() as session:
        for spoil in (lambda: victim.write_bytes(bytes(size)), lambda: victim.write_bytes(b"short"), victim.unlink):
            spoil()
            with pytest.raises(TransferError, match=r"f0\.bin changed"):
                await push_tree(session, listing, str(store))
        assert not list(store.glob("?" * 64))


async def test_the_far_side_checks_contents_itself(source, store):
    listing = scan_folder(source)
    params = {"store": str(store), "tree_hash": listing.tree_hash, "provenance": {}, "lock_wait_s": 0}
    async with open_agent() as session:
        with pytest.raises(AgentOpError, match="not those that were announced") as error:
            async with session.exchange("tree_push", body=pack(listing.entries), **params) as exchange:
                await exchange.receive()
                await exchange.send({}, bytes(20000))
                await exchange.receive()
        assert error.value.kind == "bad_content"
        assert not list(store.glob("?" * 64))


async def test_what_a_crash_of_the_machine_left_empty_is_asked_for_again(source, store):
    left = store / ".incoming" / "blobs"
    left.mkdir(parents=True)
    listing = scan_folder(source)
    for entry in listing.entries:
        if entry.kind == "file":
            (left / entry.sha256).write_bytes(bytes(entry.size))
    async with open_agent() as session:
        result = await push_tree(session, listing, str(store))
        assert contents(Path(result.path)) == expected(source)


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../../up"])
async def test_the_far_side_checks_names_itself(path, tmp_path, store):
    entries = [Entry(path, "file", 0o644, 1, "a" * 64, "")]
    async with open_agent() as session:
        with pytest.raises(AgentOpError) as error:
            params = {"store": str(store), "tree_hash": tree_hash(entries), "provenance": {}, "lock_wait_s": 0}
            await session.request("tree_push", body=pack(entries), **params)
    assert error.value.kind == "bad_manifest"
    assert not store.exists()


def git(folder, *words):
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(folder), *words]
    subprocess.run(argv, check=True, capture_output=True)


async def test_a_commit_is_what_git_has_and_not_what_lies_around(tmp_path, store):
    repository = tmp_path / "repo"
    payload = make_tree(repository / "payload")
    (repository / "other").write_text("not shipped")
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "one")
    committed = scan_folder(payload)
    assert committed.git.branch == "main" and committed.git.dirty_files == () and len(committed.git.commit) == 40
    assert describe_git(tmp_path) is None
    (payload / "run.sh").write_text("hacked\n")
    (payload / "extra file").write_text("untracked")
    assert set(scan_folder(payload).git.dirty_files) == {"payload/run.sh", "payload/extra file"}
    source = scan_git_revision(payload, "HEAD")
    # git keeps no empty folders; all else is as committed
    assert [entry for entry in committed.entries if entry.path != "empty_folder"] == list(source.entries)
    async with open_agent() as session:
        result = await push_tree(session, source, str(store), provenance={"who": "me"})
        assert (Path(result.path) / "run.sh").read_text() == "#!/bin/sh\n"
        record = (await session.request("read_file", path=result.path + ".json")).body
        assert source.git.commit.encode() in record and b'"who":"me"' in record
    with pytest.raises(UsageError, match="no revision"):
        scan_git_revision(payload, "nonexistent")


async def test_pull_then_nothing_then_one_file(tmp_path, source):
    remote, local = make_tree(tmp_path / "remote", seed=5), tmp_path / "local"
    async with open_agent() as session:
        seen = []
        first = await pull_tree(session, str(remote), local, exclude=["__pycache__"], on_progress=seen.append)
        assert contents(local) == expected(remote)
        assert seen[-1].bytes_done == seen[-1].bytes_total == first.bytes_received > 0
        assert not (tmp_path / "local.incoming").exists()
        before = snapshot(local)
        again = await pull_tree(session, str(remote), local, exclude=["__pycache__"])
        assert again.bytes_received == 0 and again.files == first.files
        del before["link"]
        assert before.items() <= snapshot(local).items()
        (remote / "empty").write_text("no more")
        (local / "mine").write_text("kept")
        third = await pull_tree(session, str(remote), local, exclude=["__pycache__"])
        assert (third.files_received, third.bytes_received) == (1, 7)
        assert (local / "empty").read_text() == "no more" and (local / "mine").read_text() == "kept"
        inodes = [path.stat().st_ino for path in (local / "pkg" / "text.py", local / "pkg" / "twin.py")]
        assert inodes[0] != inodes[1]


async def test_pull_writes_through_no_local_link(tmp_path):
    remote, local, outside = tmp_path / "remote", tmp_path / "local", tmp_path / "outside"
    (remote / "d").mkdir(parents=True)
    (remote / "d" / "f").write_text("x")
    outside.mkdir()
    local.mkdir()
    (local / "d").symlink_to(outside)
    async with open_agent() as session:
        with pytest.raises(TransferError):
            await pull_tree(session, str(remote), local)
        assert not list(outside.iterdir())
        (local / "d").unlink()
        await pull_tree(session, str(remote), local)
        with pytest.raises(TransferError, match="absent"):
            await pull_tree(session, str(tmp_path / "absent"), local)


async def test_pull_resumes(tmp_path, monkeypatch):
    remote, local = make_tree(tmp_path / "remote", seed=6), tmp_path / "local"
    kept = []

    def cut(progress):
        if progress.files_done >= 5:
            kept.append(progress)
            raise RuntimeError("cut")

    async with open_agent("/usr/bin/python3") as session:
        # Make the first files larger than several of the agent's frames.
        for number in range(6):
            (remote / f"0{number}").write_bytes(random.Random(number).randbytes(700_000))
        with pytest.raises(RuntimeError):
            await pull_tree(session, str(remote), local, on_progress=cut)
        assert not local.exists() and kept
        result = await pull_tree(session, str(remote), local)
        assert result.bytes_received < kept[-1].bytes_total - 4 * 700_000
        assert (local / "05").read_bytes() == (remote / "05").read_bytes()


async def test_prune_keeps_what_is_used(tmp_path, source, store):
    base = store.parent
    hashes = []
    async with open_agent() as session:
        await lease(session, store)
        for number in range(6):
            (source / "n").write_text(str(number))
            hashes.append((await push_tree(session, scan_folder(source), str(store))).tree_hash)
            if number in (0, 1):
                await switch_current(session, str(base), hashes[-1])
        (base / "runs" / "r1").mkdir(parents=True)
        (base / "runs" / "r1" / "run.json").write_text(f'{{"release": "{store}/{hashes[2]}"}}')
        (base / "live.lock").write_text('{"run_id": "r1"}')
        holder = subprocess.Popen(
            ["flock", str(base / "live.lock"), "sh", "-c", "echo held; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            holder.stdout.readline()
            reply = await session.request("prune_releases", base=str(base), keep=1, in_use=[hashes[3]])
        finally:
            holder.communicate()
        assert reply.header["removed"] == [hashes[4]]
        assert sorted(reply.header["kept"]) == sorted(set(hashes) - {hashes[4]})
        assert not (store / hashes[4]).exists() and not (store / f"{hashes[4]}.json").exists()
        reply = await session.request("prune_releases", base=str(base), keep=0, in_use=[])
        assert sorted(reply.header["kept"]) == sorted(hashes[:2])


async def test_disk_full_leaves_nothing_behind_and_the_live_release_alone(tmp_path):
    """In a mount namespace of its own, on a small tmpfs."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    if os.geteuid() != 0 or probe.returncode:
        pytest.skip("needs root and mount namespaces")
    point = tmp_path / "small"
    point.mkdir()
    script = f"mount -t tmpfs -o size=8m none {point} && exec env PYTHONPATH={Path.cwd()} {sys.executable} -"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], input=FULL_DISK.replace("POINT", str(point)), text=True, timeout=60
    )
    assert done.returncode == 0


FULL_DISK = """
import asyncio, os, random
from pathlib import Path
from orchestrator.agent.client import AgentSession
from orchestrator.agent.tree import push_tree, scan_folder
from orchestrator.errors import TransferError
from tests.local_agent import LocalStarter

async def main():
    point = Path("POINT")
    source = point.parent / "from"
    source.mkdir()
    (source / "small").write_bytes(random.randbytes(2_000_000))
    session = await AgentSession.open(LocalStarter())
    first = await push_tree(session, scan_folder(source), str(point / "releases"))
    (source / "large").write_bytes(random.randbytes(9_000_000))
    try:
        await push_tree(session, scan_folder(source), str(point / "releases"))
        raise SystemExit("it had no room")
    except TransferError as error:
        assert "nothing was sent" in error.what and "are needed" in error.evidence, error
    # Enough at first, and then somebody else fills it.
    (source / "large").write_bytes(random.randbytes(3_500_000))
    hog = point / "hog"
    def fill(progress):
        if progress.bytes_done and not hog.exists():
            with hog.open("wb") as stream:
                try:
                    while True:
                        stream.write(bytes(65536))
                        stream.flush()
                except OSError:
                    pass
    try:
        await push_tree(session, scan_folder(source), str(point / "releases"), on_progress=fill)
        raise SystemExit("it had no room")
    except TransferError as error:
        assert "undone" in error.what, error
    assert (await session.request("tree_verify", path=first.path)).header["changed"] == []
    assert [p.name for p in (point / "releases" / ".incoming").iterdir()] == ["lock"]
    hog.unlink()
    await push_tree(session, scan_folder(source), str(point / "releases"))
    await session.close()

asyncio.run(main())
"""


def test_a_payload_folder_that_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(TransferError, match="there is no folder") as missing:
        scan_folder(tmp_path / "nosuch")
    assert "`folder:`" in missing.value.way_out
    (tmp_path / "file").write_text("x")
    with pytest.raises(TransferError, match="is not a folder"):
        scan_folder(tmp_path / "file")
