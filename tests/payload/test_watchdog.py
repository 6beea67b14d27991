"""A stall is told with every thread's stack; a long compilation is no stall. By a clock of its own."""

from __future__ import annotations

import json
import threading

import contract
import progress
import pytest
from progress import Progress
from tiny import tiny_config
from watchdog import Watchdog, compiling_now, show_stacks

STALL_S, COMPILE_S = 300, 1800


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def scene(tmp_path, monkeypatch):
    clock, shown, compiling = Clock(), [], []
    monkeypatch.setattr(progress.time, "monotonic", clock)
    told = Progress(tmp_path)
    limits = tiny_config(watchdog__stall_s=STALL_S, watchdog__compile_s=COMPILE_S).watchdog
    dog = Watchdog(told, limits, clock=clock, compiling=lambda: bool(compiling), show=lambda: shown.append(clock.now))
    return clock, told, dog, shown, compiling


def test_a_stall_is_told_once_then_when_the_silence_has_doubled(scene, tmp_path, capsys):
    clock, told, dog, shown, _ = scene
    told.phase("training")
    begun = clock.now
    for second in range(0, 1300, 5):
        clock.now = begun + second
        dog.look()
    assert [at - begun for at in shown] == [300, 600, 1200]
    assert "no progress for 300 s while training" in capsys.readouterr().out
    assert "no progress" in json.loads((tmp_path / contract.STATUS).read_text())["detail"]


def test_what_moves_is_no_stall_and_moving_again_forgets(scene):
    clock, told, dog, _, _ = scene
    told.phase("training")
    for step in range(100):
        clock.now += 200
        told.step(step, 100, 1, 1.0)
        assert not dog.look()
    clock.now += STALL_S
    assert dog.look()
    told.step(100, 100, 1, 1.0)
    assert not dog.look()
    clock.now += STALL_S
    assert dog.look()


@pytest.mark.parametrize("by_phase", [True, False])
def test_a_long_compilation_is_no_stall_until_it_is_too_long(scene, by_phase, capsys):
    clock, told, dog, _, compiling = scene
    told.phase("compiling" if by_phase else "training")
    compiling += [] if by_phase else [True]
    clock.now += COMPILE_S - 1
    assert not dog.look()
    clock.now += 1
    assert dog.look()
    assert "while compiling" in capsys.readouterr().out


def test_compiling_is_seen_by_where_threads_are():
    assert not compiling_now()
    space = {}
    exec(
        compile("def compile_it(go, done):\n    go.set()\n    done.wait(20)\n", "/x/torch/_dynamo/a.py", "exec"), space
    )
    go, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=space["compile_it"], args=(go, done))
    thread.start()
    assert go.wait(20)
    try:
        assert compiling_now()
    finally:
        done.set()
        thread.join(20)


def test_the_stacks_of_all_threads_are_shown(capfd):
    done = threading.Event()

    def stuck_in_the_queue():
        done.wait(20)

    thread = threading.Thread(target=stuck_in_the_queue)
    thread.start()
    show_stacks()
    done.set()
    thread.join(20)
    text = capfd.readouterr().err
    assert "stuck_in_the_queue" in text
    assert "test_the_stacks_of_all_threads_are_shown" in text
