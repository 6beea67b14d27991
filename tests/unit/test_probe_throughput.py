"""How fast a training is: what arrives when, with a clock of our own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.rate import Rate
from orchestrator.probes.throughput import BARS_TAKE_OVER, Throughput, ThroughputMeter, merge, read_tail
from orchestrator.probes.training import TrainingStatus


class Look:
    """A meter, and a clock that goes on when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meter = ThroughputMeter(lambda: self.now)

    def says(self, text: str, after_s: float = 0.0) -> Look:
        self.now += after_s
        self.meter.feed(text.encode())
        return self

    @property
    def fact(self) -> Throughput:
        found = self.meter.fact()
        assert found is not None
        return found

    def per_s(self) -> tuple[float | None, float | None]:
        short, long = self.fact.rate, self.fact.long_rate
        return short and round(short.per_s, 6), long and round(long.per_s, 6)


def status(**said: object) -> TrainingStatus:
    known = dict.fromkeys(("phase", "step", "total_steps", "loss", "tokens_per_s", "eta_s", "detail", "updated_at"))
    return TrainingStatus(**{**known, **said})  # type: ignore[arg-type]


def test_a_printed_rate_is_taken_as_it_is() -> None:
    fact = Look().says("loading\nstep 5/10 loss 1.5 2.0 it/s\n").fact
    assert (fact.source, fact.step, fact.total_steps, fact.loss) == ("log", 5, 10, 1.5)
    assert fact.rate == Rate(2.0, "it", False, "2.0 it/s") and fact.eta_s == 2.5


def test_the_rate_is_what_the_steps_advance_by_where_none_is_printed() -> None:
    look = Look().says("step 10 loss 1\n")
    assert look.fact.rate is None, "one look is no speed"
    assert look.says("step 15 loss 1\nstep 20 loss 1\n", after_s=5).per_s() == (2.0, 2.0)
    assert look.fact.rate and look.fact.rate.printed == ""


def test_the_short_window_forgets_what_the_long_one_keeps() -> None:
    look, step = Look(), 0
    for _ in range(60):
        step += 10
        look.says(f"step {step} loss 1\n", after_s=1)
    for _ in range(30):
        step += 1
        look.says(f"step {step} loss 1\n", after_s=1)
    short, long = look.per_s()
    assert short == 1.0 and long == pytest.approx((59 * 10 + 30) / 89)


def test_slow_steps_are_still_measured() -> None:
    look = Look()
    for step in range(4):
        look.says(f"step {step} loss 1\n", after_s=70)
    assert look.per_s() == (pytest.approx(1 / 70, abs=1e-6), pytest.approx(1 / 70, abs=1e-6))


def test_slow_steps_whose_lines_come_in_pairs_do_not_stand_still() -> None:
    look = Look()
    for step in range(3):
        look.says(f"step {step} loss 1\nstep {step} loss 1\n", after_s=70)
    assert look.says("", after_s=60).fact.rate is not None


def test_a_training_that_stands_still_has_no_rate_and_says_since_when() -> None:
    look = Look().says("step 1 loss 1\n").says("step 2 loss 1\n", after_s=1)
    assert look.per_s()[0] == 1.0
    look.says("", after_s=60)
    assert look.fact.rate is None and look.fact.age_s == 60


def test_lines_that_come_at_once_are_one_look() -> None:
    assert Look().says("step 1 loss 1\nstep 500 loss 1\n").fact.rate is None


def test_ranks_that_all_say_the_same_are_one_step() -> None:
    look = Look().says("step 1 loss 1\n" * 4).says("step 3 loss 1\n" * 4, after_s=1)
    assert look.per_s()[0] == 2.0


def test_a_step_that_goes_back_begins_anew() -> None:
    look = Look().says("step 900 loss 1\n").says("step 1 loss 1\n", after_s=1)
    assert look.fact.rate is None
    assert look.says("step 4 loss 1\n", after_s=1).per_s() == (3.0, 3.0)


def test_no_number_is_read_before_its_line_has_ended() -> None:
    look = Look().says("step 1")
    assert look.meter.fact() is None
    look.says("2 loss 1.")
    assert look.meter.fact() is None
    assert look.says("5\n").fact.step == 12 and look.fact.loss == 1.5


def test_a_bar_ends_its_state_by_going_back() -> None:
    bar = "\r  1%|▏         | 24/1752 [01:08<1:22:56,  2.50s/it]"
    look = Look().says(bar)
    assert look.meter.fact() is None
    look.says("\r")
    assert (look.fact.step, look.fact.total_steps, look.fact.eta_s) == (24, 1752, 4976)


def test_lines_of_metrics_know_the_step_better_than_a_bar_until_they_stop() -> None:
    bar = "  1%|▏         | {}/100 [01:08<1:22:56,  2.50s/it]\r"
    look = Look().says("step 500/1000 loss 2\n" + bar.format(7))
    assert (look.fact.step, look.fact.loss) == (500, 2.0)
    assert look.fact.rate and look.fact.rate.printed == "2.50s/it", "only the bar tells it"
    look.says(bar.format(8) * BARS_TAKE_OVER)
    assert (look.fact.step, look.fact.total_steps) == (8, 100)


def test_a_bar_behind_a_line_of_metrics_changes_neither_the_unit_of_the_rate_nor_the_time_left() -> None:
    bar = " 20%|##  | {}/100 [00:02<00:08,  9.9it/s]\r"
    look = Look().says("step 500/1000 loss 2 12.5 Ktok/s eta 1:00:00\n" + bar.format(20))
    assert look.fact.rate and (look.fact.rate.per_s, look.fact.rate.counted) == (12_500.0, "tok")
    assert look.fact.eta_s == 3600
    look.says(bar.format(21) * BARS_TAKE_OVER)
    assert look.fact.rate and look.fact.rate.counted == "it" and look.fact.eta_s == 8


def evaluates(first: int, last: int) -> str:
    return "".join(f"\n\r {n * 100 // 625}%|██  | {n}/625 [00:05<00:05, 21.9it/s]" for n in range(first, last))


def test_a_bar_within_an_unfinished_longer_one_is_another() -> None:
    look = Look()
    look.says("\r 17%|█▋   | 499/3000 [05:54<29:33,  1.41it/s]\r 17%|█▋   | 500/3000 [05:55<29:32,  1.41it/s]\r")
    look.says(evaluates(1, 400) + "\n", after_s=20)
    assert look.fact.rate and look.fact.rate.per_s == 1.41
    assert (look.fact.step, look.fact.total_steps) == (500, 3000)
    look.says("\r100%|█████| 3000/3000 [35:34<00:00,  1.40it/s]" + evaluates(1, 9) + "\n", after_s=20)
    assert (look.fact.step, look.fact.total_steps) == (8, 625), "the longer one is full: this is the next"


def test_a_tail_that_is_one_bar_is_read_with_the_longer_one_before_it() -> None:
    fact = read_tail(
        b"\r 17%|##  | 500/3000 [05:55<29:32,  1.41it/s]" + evaluates(1, 400).encode() + b"\n", begins_whole=True
    )
    assert fact is not None and fact.rate is not None
    assert (fact.step, fact.total_steps, fact.rate.per_s) == (500, 3000, 1.41)


def test_the_long_rate_of_printed_ones_is_their_median() -> None:
    look = Look()
    for number, rate in enumerate((100, 5860, 5856, 5593, 5868)):
        look.says(f"step {number} loss 1 {rate} tok/s\n", after_s=10)
    assert look.per_s() == (5868, 5856)


def test_the_contract_comes_before_what_is_printed() -> None:
    look = Look().says("step 5/10 loss 1.5 100 tok/s\n")
    look.meter.feed_status(status(step=6, tokens_per_s=200.0, eta_s=9.0))
    fact = look.fact
    assert (fact.source, fact.step, fact.total_steps, fact.loss, fact.eta_s) == ("status.json", 6, 10, 1.5, 9.0)
    assert fact.rate and fact.rate.per_s == 200
    look.meter.feed_status(status(step=6))
    assert look.fact.source == "log" and look.fact.rate and look.fact.rate.per_s == 100


def test_the_steps_of_the_contract_are_enough() -> None:
    look = Look()
    look.meter.feed_status(status(step=10, total_steps=110))
    look.now += 10
    look.meter.feed_status(status(step=20, total_steps=110))
    assert look.fact.source == "status.json" and look.per_s() == (1.0, 1.0) and look.fact.eta_s == 90


def test_a_status_that_says_no_number_leaves_it_to_the_log() -> None:
    log = read_tail(b"step 5 loss 1\n", begins_whole=True)
    assert log is not None and merge(status(phase="training"), log) == log
    assert merge(status(phase="training"), None) is None
    assert merge(status(phase="preparing"), log) is None, "the steps of a target that is made first"


def test_the_first_line_of_a_tail_is_cut_and_the_last_may_go_on() -> None:
    tail = b"ep 9 loss 1\nstep 10 loss 1.5\nstep 1"
    fact = read_tail(tail, begins_whole=False)
    assert fact is not None and (fact.step, fact.loss, fact.rate) == (10, 1.5, None)
    assert read_tail(b"step 12 loss 1\n", begins_whole=False) is None


@given(st.lists(st.tuples(st.binary(max_size=200), st.floats(0, 400)), max_size=12))
def test_any_bytes_can_be_fed(pieces: list[tuple[bytes, float]]) -> None:
    look = Look()
    for data, after_s in pieces:
        look.now += after_s
        look.meter.feed(data)
        look.meter.fact()


LINES = "step 1 loss 2\n\rstep 2/9 loss 3.25\r 1%|#| 24/1752 [01:08<1:22:56,  2.88s/it]\nµ step 3/9 loss 4.5 9 tok/s\n"


@given(st.lists(st.integers(0, len(LINES.encode())), max_size=8).map(sorted))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    data, look = LINES.encode(), Look()
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        look.meter.feed(data[begin:end])
    assert look.fact == Look().says(LINES).fact


def test_memory_is_bounded() -> None:
    look = Look()
    for _ in range(100):
        look.meter.feed(b"x" * 10_000)
    assert len(look.meter._pending) <= 80_000
    assert look.says(" step 5 loss 1\nstep 6 loss 1\n").fact.step == 6


def test_a_status_reads_the_step_of_a_table_row_by_row() -> None:
    table = "| time/  |  |\n|    fps  | 640  |\n|    total_timesteps | 4096 |\n| train/ |   |\n|    loss | 6.14 |\n"
    fact = read_tail(table.encode(), begins_whole=True)
    assert fact is not None and (fact.step, fact.loss) == (4096, 6.14)
    assert fact.rate is not None and fact.rate.per_s == 640
