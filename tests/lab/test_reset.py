"""orch reset in the labs: what it ends, what it never touches, what it keeps, and what it says before and after."""

from __future__ import annotations

import itertools
import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.real import RealLab
from orchestrator.lab.surface import NEIGHBOUR_ID, Lab
from tests.lab.place import PROJECT, Place, said
from tests.waiting import eventually

numbers = itertools.count(1)

BOTH = ("reset", "--kill-gpus", "--clear-cache")

# Uses a GPU, fills the caches, and may leave a child behind that goes on using it.
TRAINING = """\
import os, pathlib, signal, subprocess, sys, time

holder, mode, gpu = sys.argv[1:]
for variable, top in ("TORCHINDUCTOR_CACHE_DIR", "fxgraph"), ("TRITON_CACHE_DIR", "kernels"):
    graph = pathlib.Path(os.environ[variable], top, "aa", "key")
    graph.mkdir(parents=True, exist_ok=True)
    (graph / "entry").write_text(variable)
child = subprocess.Popen(["python3", "-IS", holder, gpu], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()


def save(number, frame):
    print("saved", flush=True)
    child.kill()
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print("step 1 loss 1.0", flush=True)
while mode == "stay":
    time.sleep(0.05)
"""


class ResetPlace(Place):
    def training(self, mode: str, gpu: str = "2=700") -> None:
        (self.payload / "foreign.py").write_text(TRAINING)
        holder = f"{self.lab.shared_seen_at}/hold_gpu.py"
        self.write(command=["python3", "foreign.py", holder, mode, gpu], stop_timeout_s=20)
        self.ok("deploy")
        if mode == "stay":
            self.ok("launch")
            eventually(lambda: "step 1" in self.ok("logs"), "it uses the GPU")
        else:
            self.ok("launch", "--wait", "end")

    def tree(self) -> str:
        """Every process and every file of the base, as they stand."""
        files = self.inside("find", self.base, "-not", "-name", "journal*", "-printf", "%p %s %T@\\n")
        return "\n".join(sorted(files.splitlines()))

    def reset(self, *words: str) -> dict[str, Any]:
        done = self.orch("reset", "--json", *words)
        assert done.returncode in (0, 14), said(done)
        record: dict[str, Any] = json.loads(done.stdout)
        return record

    def snapshots(self) -> list[str]:
        return self.inside("sh", "-c", f"ls {self.base}/caches/snapshots 2>/dev/null || true").split()


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[ResetPlace]:
    place = ResetPlace(either_lab, tmp_path, f"r{next(numbers)}")
    yield place
    place.orch(*BOTH, "--yes")
    place.clean()


@pytest.fixture
def shared(neighbour: RealLab, tmp_path: Path) -> Iterator[ResetPlace]:
    """In the real lab, with a neighbour's container on the same GPUs."""
    place = ResetPlace(neighbour, tmp_path, f"r{next(numbers)}")
    yield place
    place.orch(*BOTH, "--yes")
    place.clean()


def used_mib(place: Place) -> list[int]:
    return [gpu["memory_used_mib"] for gpu in place.status()["gpus"]]


def test_a_stray_is_ended_and_the_cache_kept(place: ResetPlace) -> None:
    place.training("leave")
    assert used_mib(place)[2] == 700
    text = place.ok(*BOTH, "--yes")
    assert "left over from run" in text and all(len(line) <= 80 for line in text.split("looked at")[0].splitlines())
    assert used_mib(place)[2] == 0
    assert len(place.snapshots()) == 1
    assert "nothing" in place.ok(*BOTH)  # nothing to change: nobody is asked


@pytest.mark.real_lab
def test_it_asks_first_and_without_a_terminal_does_nothing(shared: ResetPlace) -> None:
    shared.training("leave")
    before = shared.tree()
    done = shared.orch(*BOTH)
    assert done.returncode == 2 and b"--yes" in done.stderr
    shown = done.stdout.decode()
    assert "left over from run" in shown and "clear the compile cache" in shown
    assert shared.ok(*BOTH, "--dry-run") == shown
    assert shared.tree() == before and used_mib(shared)[2] == 700
    assert shared.reset("--kill-gpus", "--clear-cache", "--dry-run")["done"] is False
    assert shared.tree() == before and used_mib(shared)[2] == 700


def test_a_live_run_is_named_first_asked_to_save_and_ended(place: ResetPlace) -> None:
    place.training("stay")
    done = place.orch("reset", "--clear-cache", "--yes")
    assert done.returncode == 9 and b"is live" in done.stderr
    assert place.snapshots() == []
    cache = f"{place.base}/caches/live/inductor"
    place.inside("sh", "-c", f"mv {cache} {cache}.moved && ln -s {cache}.moved {cache}")
    for words in (("--dry-run",), ("--yes",)):
        done = place.orch(*BOTH, *words)
        assert done.returncode == 10 and b"is a link" in done.stderr
    assert place.status()["run"]["state"]["phase"] == "running", "it was ended for a cache that cannot be cleared"
    place.inside("sh", "-c", f"rm {cache} && mv {cache}.moved {cache}")
    text = place.ok(*BOTH, "--yes")
    assert "ENDS THE LIVE RUN" in text.splitlines()[1]
    status = place.status()
    assert status["run"]["state"]["exit"]["exit_code"] == 0, "it was not asked before it was killed"
    assert used_mib(place)[2] == 0 and len(place.snapshots()) == 1


@pytest.mark.real_lab
def test_last_good_seeds_from_the_run_that_ended_well(shared: ResetPlace) -> None:
    done = shared.orch("reset", "--clear-cache", "--seed", "last-good", "--yes")
    assert done.returncode == 2 and b"no last good snapshot" in done.stderr
    shared.training("leave")
    first = shared.reset("--kill-gpus", "--clear-cache", "--yes")
    assert first["as_wanted"] and first["cleared"]["files"] == 2
    seeded = shared.reset("--clear-cache", "--seed", "last-good", "--yes")
    assert seeded["as_wanted"] and seeded["plan"]["seed"]["name"] == first["cleared"]["snapshot"]
    assert shared.status()["cache"]["entries"] == 1
    entry = f"{shared.base}/caches/snapshots/{first['cleared']['snapshot']}/inductor/fxgraph/aa/key/entry"
    shared.inside("sh", "-c", f"echo damage > {entry}")
    before = shared.tree()
    done = shared.orch("reset", "--clear-cache", "--seed", "last-good", "--yes")
    assert done.returncode == 10 and b"inductor/fxgraph/aa/key/entry" in done.stderr
    assert shared.tree() == before


def on_terminal(place: Place, words: tuple[str, ...], answer: bytes | None) -> tuple[int, str]:
    """What a person sees who types the answer at the question; None: Ctrl-C."""
    controller, terminal = pty.openpty()
    process = place.popen(*words, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen, answered, until = b"", False, time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([controller], [], [], 0.2)[0]:
            try:
                data = os.read(controller, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
        if b"[yes/no]" in seen and not answered:
            answered = True
            process.send_signal(signal.SIGINT) if answer is None else os.write(controller, answer)
    os.close(controller)
    return process.wait(20), seen.decode(errors="replace")


@pytest.mark.real_lab
def test_on_a_terminal_the_third_line_asks_and_obeys(shared: ResetPlace) -> None:
    shared.training("leave")
    code, text = on_terminal(shared, BOTH, b"no\n")
    assert code == 0 and "nothing was changed" in text and used_mib(shared)[2] == 700
    code, text = on_terminal(shared, BOTH, None)
    assert code == 130 and used_mib(shared)[2] == 700
    code, text = on_terminal(shared, BOTH, b"yes\n")
    assert code == 0 and "looked at again" in text and used_mib(shared)[2] == 0


@pytest.mark.real_lab
def test_the_neighbour_and_the_host_are_shown_and_left_alone(shared: ResetPlace) -> None:
    shared.training("leave")
    mine = shared.hold_gpus({0: 900})
    beside = shared.hold_gpus({0: 5000}, container=NEIGHBOUR_ID)
    own = shared.hold_gpus({1: 10}, container=None)
    record = shared.reset("--kill-gpus", "--yes")
    assert record["as_wanted"], record["found"]
    rows = {row["host_pid"]: row["reason"] for row in record["plan"]["kill"]["spared"]}
    assert rows[beside.host_pid] == "container 201's" and "host's own" in rows[own.host_pid]
    assert beside.alive() and own.alive()
    eventually(lambda: not mine.alive(), "a process of the container that no run started ends too")
    assert used_mib(shared)[:3] == [5000, 10, 0]


@pytest.mark.real_lab
def test_in_200_resets_the_stray_always_dies_and_the_neighbour_never(shared: ResetPlace) -> None:
    """Although three numbers of four are given to somebody else between the plan and the kill."""
    shared.write(command=["true"])
    shared.ok("deploy")
    shared.ok("launch", "--wait", "end")
    run_id = shared.status()["run"]["run_id"]
    program = [sys.executable, "-m", "tests.lab.reset_rounds"]
    words = [shared.lab.record.id, str(shared.inventory), shared.base, run_id, "200"]
    done = shared.lab.run([*program, *words], cwd=PROJECT, env=shared.environment(), timeout_s=280)
    assert done.returncode == 0, said(done)
    counted = json.loads(done.stdout)
    assert (counted["resets"], counted["reused"], counted["killed"]) == (200, 150, 50)
