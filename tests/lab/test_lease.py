"""One writer per target: two controllers at once, one that is cut off while it writes, and those who only look."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.real import RealLab
from tests.lab.conftest import require_real_lab
from tests.lab.past_orch import agents, far
from tests.lab.place import Place, said
from tests.waiting import eventually

pytestmark = pytest.mark.real_lab
numbers = itertools.count(1)
ROUNDS = 50
FREE_WITHIN_S = 20.0

CONTROLLER = """
import contextlib, io, json, sys
from orchestrator.cli.main import main
import orchestrator.operations.launch as operation
operation.INSTANT_FAILURE_WATCH_S = 0.0
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(json.loads(line))
    print(json.dumps({"code": code, "said": out.getvalue() + err.getvalue()}), flush=True)
"""
"""Runs one command of orch a line: a new connection each time, but what it imports is imported once."""

HOLDER = """
import asyncio, sys
from pathlib import Path
from orchestrator.inventory.loader import load_inventory
from orchestrator.operations.session import agent_session, take_lease
async def main():
    target = load_inventory(Path(sys.argv[1])).targets["ct200"]
    async with agent_session(target, None) as session:
        await take_lease(session, target)
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


@pytest.fixture
def place(real_lab: RealLab, tmp_path: Path) -> Iterator[Place]:
    place = Place(real_lab, tmp_path, f"l{next(numbers)}")
    yield place
    place.clean()


def started(place: Place, program: str, *words: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", program, *words]
    return place.lab.popen(argv, cwd=place.folder, env=place.environment(), stdin=pipe, stdout=pipe)


def tell(controller: subprocess.Popen[bytes], *words: str) -> None:
    assert controller.stdin is not None
    controller.stdin.write(json.dumps(words).encode() + b"\n")
    controller.stdin.flush()


def answer(controller: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert controller.stdout is not None
    record: dict[str, Any] = json.loads(controller.stdout.readline())
    return record


@contextmanager
def holding_the_lease(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    with started(place, HOLDER, str(place.inventory)) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.stdin.close()


@pytest.mark.timeout(300)
def test_two_controllers_launch_at_once_and_one_run_comes_of_it(place: Place) -> None:
    until_told = 'until [ -e "$ORCH_RUN_DIR/end" ]; do sleep 0.02; done'
    place.write(command=["sh", "-c", until_told])
    place.ok("deploy")
    end = f'cd {place.base}/runs && ls && touch "$1/end" && flock {place.base}/live.lock true'
    launch = ("launch", "-i", str(place.inventory))
    runs: set[str] = set()
    with started(place, CONTROLLER) as first, started(place, CONTROLLER) as second:
        for number in range(ROUNDS):
            for controller in (first, second) if number % 2 else (second, first):
                tell(controller, *launch)
            answers = [(controller, answer(controller)) for controller in (first, second)]
            (winner,) = [entry for entry in answers if entry[1]["code"] == 0]
            (loser,) = [entry for entry in answers if entry[1]["code"] == 9]
            run_id = re.search(r"run (\S+) started", winner[1]["said"])
            assert run_id, winner[1]["said"]
            # Beaten at the lease or, a moment later, at live.lock.
            assert f"(pid {winner[0].pid})" in loser[1]["said"] or run_id[1] in loser[1]["said"], loser[1]["said"]
            runs.add(run_id[1])
            assert set(far(place, "sh", "-c", end, "sh", run_id[1]).split()) == runs
        for controller in (first, second):
            assert controller.stdin is not None
            controller.stdin.close()
    assert len(runs) == ROUNDS


def test_who_only_looks_never_waits_for_the_lease(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    with holding_the_lease(place) as holder:
        assert "ended well" in place.ok("status")
        assert place.ok("logs", "-n", "1").startswith("step 3 ")
        assert "ct200" in place.ok("hosts")
        assert "ct200" in place.ok("deploy", "--dry-run")
        assert place.inside("echo", "here") == "here\n"
        for words in (("launch",), ("deploy",), ("rollback",)):
            refused = place.orch(*words)
            assert refused.returncode == 9, said(refused)
            assert f"(pid {holder.pid})" in said(refused) and "another orch is changing ct200" in said(refused)
    assert "0 bytes sent" in place.ok("deploy")


def test_after_launch_the_lease_is_free(place: Place) -> None:
    place.write(command=["python3", "foreign.py", "100000", "0.02"])
    place.ok("deploy")
    free = ("sh", "-c", f"flock -n {place.base}/lease.lock echo free")
    place.ok("launch")
    assert far(place, *free) == "free\n"
    place.ok("stop")
    with (place.folder / "said").open("wb") as text:
        client = place.popen("launch", "--wait", "end", stdout=text, stderr=text)
    eventually(lambda: b"started" in (place.folder / "said").read_bytes(), "it is started")
    assert far(place, *free) == "free\n"
    assert client.poll() is None
    assert "is live" in place.ok("deploy")
    place.ok("stop")
    assert client.wait(20) == 11


@pytest.fixture
def two_links(tmp_path: Path) -> Iterator[tuple[Place, Path]]:
    """A lab of its own, and an inventory that reaches the same container by another wire."""
    require_real_lab()
    lab = RealLab.up(bound=True)
    try:
        config = tmp_path / "ssh_config"
        config.write_text(f"Host *\n  BindAddress {lab.make_second_link()}\n")
        place = Place(lab, tmp_path, "black-hole")
        place.write(host={"ssh_config": str(config)}, command=["true"])
        beside = place.inventory.rename(tmp_path / "beside.yaml")
        place.write(command=["true"])
        yield place, beside
    finally:
        lab.down()


def test_a_holder_that_is_cut_off_frees_the_lease_and_ends(two_links: tuple[Place, Path]) -> None:
    place, beside = two_links
    place.ok("deploy")
    old = place.status()["release"]
    for number in range(12):
        (place.payload / f"part{number}").write_bytes(os.urandom(8_000_000))
    incoming = f"{place.base}/releases/.incoming"
    with (place.folder / "said").open("wb") as text:
        holder = place.popen("deploy", stdout=text, stderr=text)
    eventually(lambda: len(far(place, "ls", f"{incoming}/blobs").split()) >= 2, "nothing arrives")
    # Its machine hangs, and the network swallows what is sent to it: nobody closes anything.
    holder.send_signal(signal.SIGSTOP)
    place.lab.link_down()
    try:
        (agent,) = agents(place)
        by_the_other_wire = [word if word != str(place.inventory) else str(beside) for word in place.argv("rollback")]

        def tried() -> subprocess.CompletedProcess[bytes]:
            return place.lab.run(by_the_other_wire, cwd=place.folder, env=place.environment())

        refused = tried()
        assert refused.returncode == 9, said(refused)
        assert f"(pid {holder.pid})" in said(refused)
        eventually(lambda: tried().returncode != 9, "the lease is free", timeout_s=FREE_WITHIN_S)
        assert not far(place, "test", "-e", f"/proc/{agent}") and agents(place) == []
        arrived = far(place, "ls", "-l", f"{incoming}/blobs")
    finally:
        place.lab.link_up()
        holder.send_signal(signal.SIGCONT)
    # What it wakes up to is that it was cut off; it changes nothing any more.
    assert holder.wait(60) == 8, (place.folder / "said").read_text()
    assert far(place, "ls", "-l", f"{incoming}/blobs") == arrived
    assert place.status()["release"] == old
