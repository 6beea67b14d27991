"""A disk that runs full, or out of inodes, in a save, clear, seed or push: it is named, and nothing is half done."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, pathlib, sys, traceback
from orchestrator.agent.far.errors import OpError
from tests.contract.test_cache_deaths import KINDS, Caches
room, inodes = pathlib.Path(sys.argv[1]), sys.argv[2] == "inodes"
theirs, ours = Caches(room / "theirs"), Caches(room / "ours")
for place, word in ((theirs, "theirs" * 4000), (ours, "first" * 4000)):
    place.fill(word)
    place.save("theirs" if place is theirs else "nightly")
ours.fill("old" * 5000)
old, new, empty = ours.live(), ours.kept("nightly"), {kind: {} for kind in KINDS}
verbs = {
    "save": lambda: ours.save("fresh"),
    "clear": ours.clear,
    "seed": lambda: ours.seed("nightly"),
    "push": lambda: ours.push_from(theirs, "theirs"),
}
filler = room / "filler"
def leave(amount):
    "Fill the file system but for so many kilobytes, or inodes."
    filler.mkdir()
    found = os.statvfs(room)
    if inodes:
        for number in range(max(0, found.f_favail - amount)):
            (filler / str(number)).touch()
    else:
        with open(filler / "data", "wb") as stream:
            stream.write(bytes(max(0, found.f_bavail * found.f_frsize - amount * 1024)))
def again():
    for path in filler.iterdir():
        path.unlink()
    filler.rmdir()
failed = dict.fromkeys(verbs, 0)
for amount in ((0, 2, 5, 9, 14, 20, 27, 35) if inodes else (0, 4, 8, 24, 64, 128, 256, 512)):
    for verb, work in verbs.items():
        ours.fill("old" * 5000)
        assert ours.live() == old
        leave(amount)
        try:
            work()
        except OpError as error:
            said = str(error).lower()
            assert any(word in said for word in ("full", "space", "inodes", "free")), (verb, error.kind, said)
            failed[verb] += 1
        except OSError as error:  # the agent's server tells it
            assert error.errno == 28 and (verb == "clear" or "journal" in traceback.format_exc()), verb
            failed[verb] += 1
        whole = {"clear": [old, empty], "seed": [old, new]}.get(verb, [old])
        assert ours.live() in whole, (amount, verb)
        ours.require_whole_snapshots()
        left = [*room.rglob("*.orch-seeding"), *room.rglob(".saving-*"), *room.rglob(".incoming/tree")]
        assert not left, (verb, left)
        again()
        if {"save": "fresh", "push": "theirs"}.get(verb) not in ours.names():
            work()
        ours.clear()
        names = ours.names()
        assert ours.listed()["unfinished"] == [] and any(ours.kept(name) == old for name in names), (amount, verb)
        ours.require_whole_snapshots()
        for name in names:
            ours.drop(name) if name != "nightly" else None
assert ours.listed()["unsaved"] == ours.listed()["arriving"] == []
assert all(failed.values()), failed
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a small file system of its own")
@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_full_disk_is_named_and_leaves_the_caches_whole(tmp_path, what):
    mount = 'mount -t tmpfs -o size=8m,nr_inodes=800 none "$1" && exec "$2" -c "$3" "$1" "$4"'
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, sys.executable, SCRIPT, what]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONPATH=os.getcwd())
    )
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stdout + done.stderr
