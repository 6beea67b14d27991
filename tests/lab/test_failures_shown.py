"""The last failure is shown whole, wherever in the log it stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.surface import Lab
from tests.lab.place import Place, said

CRASHES = '''\
"""Fails in a thread, then by an exception that another one caused, and is noisy to the end."""
import atexit
import threading

NOISE = "step 5 loss 1.25, said by another rank\\n" * 20000


def work():
    raise MemoryError("drafter 0")


def load(depth):
    return {}["weights"] if depth == 0 else again(depth - 1)


def again(depth):
    return load(depth)


thread = threading.Thread(target=work)
thread.start()
thread.join()
print(NOISE, flush=True)
atexit.register(print, NOISE)
try:
    load(40)
except KeyError as error:
    raise RuntimeError("no \\x1b[31mweights\\x1b[0m") from error
'''

numbers = itertools.count(1)


@pytest.fixture
def place(either_lab: Lab, tmp_path: Path) -> Iterator[Place]:
    place = Place(either_lab, tmp_path, f"f{next(numbers)}")
    (place.payload / "crashes.py").write_text(CRASHES)
    yield place
    place.clean()


def test_logs_traceback_shows_the_last_failure_and_the_first(place: Place) -> None:
    place.ok("deploy")
    place.ok("launch", "--wait", "end")
    done = place.orch("logs", "--traceback")
    assert (done.returncode, done.stdout) == (1, b"") and "no traceback" in said(done)

    place.write(command=["python3", "crashes.py"])
    place.ok("deploy")
    assert place.orch("launch", "--wait", "end").returncode == 11
    shown = place.ok("logs", "--traceback")
    first, _, last = shown.partition("MemoryError: drafter 0\n")
    assert first.startswith("Exception in thread")
    assert last.startswith("Traceback (most recent call last):") and "KeyError: 'weights'" in last
    assert last.count("in load") == 41
    assert last.endswith("RuntimeError: no weights\n"), "nothing of the noise, no control sequences"
    status = place.ok("status")
    assert status.count("in load") == 41 and "RuntimeError: no weights" in status, "whole here too"
