"""What goes wrong in the middle of a deploy: the live release stays whole, and the next deploy goes on."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.place import Place, said
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
numbers = itertools.count(1)
PARTS, PART_BYTES = 12, 8_000_000


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"d{next(numbers)}")
    place.write(host={"keepalive": {"interval_s": 1, "count": 2}}, command=["true"])
    place.ok("deploy")
    yield place
    place.clean()


def grow(place: Place) -> None:
    """Enough random bytes that a deploy takes some time."""
    for number in range(PARTS):
        (place.payload / f"part{number}").write_bytes(os.urandom(PART_BYTES))


def arrived(place: Place) -> int:
    """Contents that are there as a whole: not the one being written. foreign.py comes from the old release."""
    names = place.inside("sh", "-c", f"ls {place.base}/releases/.incoming/blobs 2>/dev/null || true").split()
    return len(set(names) - {"part"})


def is_whole(place: Place, release: str) -> bool:
    """Every file of the live release is as its record says."""
    assert place.status()["release"] == release
    return place.inside("cat", f"{release}/foreign.py") == (place.payload / "foreign.py").read_text()


def test_a_killed_deploy_leaves_the_old_release_and_the_next_goes_on(place: Place) -> None:
    old = place.status()["release"]
    grow(place)
    client = place.popen("deploy")
    eventually(lambda: arrived(place) >= 2, "no part arrives")
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert is_whole(place, old)
    said_again = place.ok("deploy")
    assert f"of {PARTS + 1} files" in said_again and f"sent {PARTS} of" not in said_again
    assert place.status()["release"] != old


def test_a_link_that_goes_is_an_unknown_outcome_and_harms_nothing(place: Place) -> None:
    old = place.status()["release"]
    grow(place)
    with (place.folder / "said").open("wb+") as text:
        client = place.popen("deploy", stdout=text, stderr=text)
        eventually(lambda: arrived(place) >= 1, "nothing arrives")
        place.lab.link_down()
        try:
            code = client.wait(60)
        finally:
            place.lab.link_up()
    words = (place.folder / "said").read_text()
    assert code == 8, words
    # The kernel remembers for a moment that nobody answered.
    eventually(lambda: place.orch("status").returncode == 0, "the host stays unreachable")
    assert is_whole(place, old)
    # The agent that was cut off gives the lease back by itself.
    eventually(lambda: place.orch("deploy").returncode == 0, "the lease stays taken", timeout_s=60)
    assert place.status()["release"] != old


def test_a_full_disk_is_named_and_leaves_the_old_release(place: Place) -> None:
    full = f"{place.base}/releases"
    old = place.status()["release"]
    place.inside("sh", "-c", f"mv {full} {full}.kept && mkdir {full} && mount -t tmpfs -o size=4m none {full}")
    try:
        place.inside("sh", "-c", f"cp -a {full}.kept/. {full}/")
        grow(place)
        done = place.orch("deploy")
        assert done.returncode == 13
        assert "space" in said(done) and "are free" in said(done)
        assert is_whole(place, old)
    finally:
        place.inside("sh", "-c", f"umount {full} && rmdir {full} && mv {full}.kept {full}")


def test_a_sudo_login_does_all_of_it(place: Place) -> None:
    place.write(host={"user": "trainer", "become": "sudo"}, command=["python3", "foreign.py", "3", "0.01"])
    assert "is live" in place.ok("deploy")
    assert "ended well" in place.ok("launch", "--wait", "end")
    assert "ended well" in place.ok("status")
    assert place.inside("id", "-u") == "0\n"
    place.write(host={"user": "trainer"}, command=["true"])
    done = place.orch("status")
    assert done.returncode == 7 and "root" in said(done), said(done)
