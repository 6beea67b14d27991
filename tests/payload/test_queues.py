"""The byte-bounded queue: bounded, ordered, and nobody waits for ever."""

from __future__ import annotations

import threading

import pytest
from queues import ByteQueue, Closed

DEADLINE_S = 20


def in_thread(work):
    """Runs `work` in a thread; returns the thread and where its outcome will be."""
    outcome = []

    def run():
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def ended(thread):
    thread.join(DEADLINE_S)
    return not thread.is_alive()


def test_items_come_out_in_order_and_the_bound_holds():
    queue = ByteQueue(100)
    most = 0

    def produce():
        for number in range(50):
            queue.put(number, 40)
        queue.close()

    thread, _ = in_thread(produce)
    got = []
    with pytest.raises(Closed):
        while True:
            most = max(most, queue.bytes_held)
            got.append(queue.get())
    assert got == list(range(50))
    assert 0 < most <= 100
    assert ended(thread)


def test_an_item_above_the_bound_passes_alone():
    queue = ByteQueue(10)
    queue.put("large", 1000)
    thread, outcome = in_thread(lambda: queue.put("next", 1))
    assert queue.get() == "large"
    assert ended(thread)
    assert outcome == [None]
    assert queue.get() == "next"
    assert queue.bytes_held == 0


def test_the_producers_error_is_raised_at_the_consumer_at_once():
    queue = ByteQueue(10)
    thread, outcome = in_thread(queue.get)
    error = ZeroDivisionError("in the target")
    queue.close(error)
    assert ended(thread)
    assert outcome == [error]
    with pytest.raises(ZeroDivisionError, match="in the target"):
        queue.get()


def test_closing_frees_a_waiting_producer():
    queue = ByteQueue(10)
    queue.put(1, 10)
    thread, outcome = in_thread(lambda: queue.put(2, 10))
    queue.close()
    assert ended(thread)
    assert isinstance(outcome[0], Closed)
    assert queue.get() == 1
    with pytest.raises(Closed):
        queue.get()


def test_waits_are_measured():
    queue = ByteQueue(10)
    thread, _ = in_thread(queue.get)
    queue.put(1, 1)
    assert ended(thread)
    assert queue.get_wait_s >= 0.0
    assert queue.put_wait_s >= 0.0
