"""orch or the link dies while a compile cache is saved, cleared, seeded or pushed: it is the old one or the new one."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.test_cache_verbs import TRAINING, CachePlace
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
GRAPHS = 150
LEASE_S = 60.0


@pytest.fixture(scope="module")
def place(real_lab: RealLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CachePlace]:
    place = CachePlace(real_lab, tmp_path_factory.mktemp("cut"), "Gcut")
    (place.payload / "foreign.py").write_text(TRAINING)
    place.write(host={"keepalive": {"interval_s": 1, "count": 2}}, command=["python3", "foreign.py", str(GRAPHS)])
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    place.ok("cache", "save", "kept")
    place.ok("cache", "pull", "kept", "--to", str(place.folder))
    yield place
    place.clean()


names = itertools.count(1)
VERBS = ("save", "clear", "seed", "push")


def words(place: CachePlace, verb: str) -> list[str]:
    more = {
        "save": [f"saved{next(names)}"],
        "clear": [],
        "seed": ["kept", "--replace"],
        "push": ["kept", "--from", str(place.folder), "--as", f"pushed{next(names)}"],
    }
    return ["cache", verb, *more[verb]]


def held(place: CachePlace) -> str:
    """A hash over names and contents of the live cache."""
    live = f"{place.base}/caches/live"
    script = 'cd "$1" && find . -type f ! -name "*.lock" | LC_ALL=C sort | xargs -r sha256sum | sha256sum'
    return place.inside("sh", "-c", script, "sh", live)


def after(place: CachePlace, whole: str, empty: str) -> None:
    """What the next command finds, as soon as whoever was cut off has given the lease back."""

    def goes() -> bool:
        done = place.orch("cache", "save", f"after{next(names)}")
        return done.returncode == 0 or b"empty" in done.stderr

    eventually(goes, "the next save goes", timeout_s=LEASE_S)
    assert held(place) in (whole, empty)
    assert not any(place.record("verify")["damaged"].values())
    if held(place) == empty:
        place.ok("cache", "seed", "kept")
    assert held(place) == whole
    kept = [row["name"] for row in place.record("list")["kept"]]
    for name in kept:
        if name != "kept":
            place.ok("cache", "drop", name, "--force")


def test_what_is_cut_off_leaves_the_cache_old_or_new(place: CachePlace) -> None:
    lab = place.lab
    assert isinstance(lab, RealLab)
    whole = held(place)
    place.ok("cache", "clear")
    empty = held(place)
    place.ok("cache", "seed", "kept")
    chance = random.Random(20261130)
    for verb in VERBS:
        began = time.monotonic()
        place.ok(*words(place, verb))
        took_s = time.monotonic() - began
        if held(place) == empty:
            place.ok("cache", "seed", "kept")
        client = place.popen(*words(place, verb), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took_s * chance.uniform(0.4, 1.0))  # somewhere in it, whatever is going on there
        client.send_signal(signal.SIGKILL)
        client.wait()
        after(place, whole, empty)
    for verb in ("seed", "push"):
        client = place.popen(*words(place, verb), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.0 * chance.uniform(0.4, 1.0))
        lab.link_down()
        try:
            code = client.wait(60)
        finally:
            lab.link_up()
        assert code in (0, 4, 8), code
        eventually(lambda: place.orch("status").returncode == 0, "the host stays unreachable")
        after(place, whole, empty)
