"""What `nvidia-smi -l` prints, put together to whole answers."""

import pytest

from orchestrator.agent.far import smi
from orchestrator.agent.far.smi import QUIET_S, Rounds


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rounds(clock):
    return Rounds(3, clock)


def test_a_round_is_whole_when_it_is_quiet_or_as_long_as_the_last_one(rounds, clock):
    rounds.feed(b"0, a, 1\n1, a, 2\n")
    assert rounds.rows == []
    clock.now += QUIET_S
    rounds.settle()
    assert (rounds.rows, rounds.rows_at) == (["0, a, 1", "1, a, 2"], clock.now)
    clock.now += 1
    rounds.feed(b"0, a, 3\n1, ")
    assert rounds.rows == ["0, a, 1", "1, a, 2"], "half a round is not told"
    rounds.feed(b"a, 4\n")
    assert (rounds.rows, rounds.rows_at) == (["0, a, 3", "1, a, 4"], clock.now)


def test_a_round_ends_where_the_next_one_begins(rounds):
    rounds.feed(b"0, a, 1\n1, a, 2\n0, a, 3\n")
    assert rounds.rows == ["0, a, 1", "1, a, 2"]


def test_a_gpu_that_is_gone_is_gone_from_the_next_round(rounds, clock):
    rounds.feed(b"0, a, 1\n1, a, 2\n0, a, 3\n")
    clock.now += QUIET_S
    rounds.settle()
    assert rounds.rows == ["0, a, 3"]


def test_what_is_no_row_is_a_word_until_the_next_whole_round(rounds, clock):
    rounds.feed(b"0, a, 1\n0, a, 2\nUnable to determine the device handle\n")
    assert rounds.words == ["Unable to determine the device handle"] and rounds.rows == ["0, a, 2"]
    rounds.feed(b"0, a, 3\n")
    assert rounds.words == [] and rounds.rows == ["0, a, 3"]


def test_bytes_that_are_no_text_and_endless_lines_are_survived(rounds):
    rounds.feed(b"\xff\xfe\n" + b"x" * 10**6)
    rounds.feed(b"y" * 10**6)
    assert len(rounds._pending) <= smi.KEPT_BYTES
