"""What lines of trainings say: shapes that people's trainings print, and what must not be taken for one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.probes.printed import read_line
from orchestrator.probes.rate import Reading
from orchestrator.probes.text import plain_lines

TITAN = "[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - "
CASES = Path(__file__).resolve().parent.parent / "data" / "printed" / "lines.txt"


def cases() -> list[tuple[str, str]]:
    lines = [line for line in CASES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(line[2:], expected[2:]) for line, expected in zip(lines[::2], lines[1::2], strict=True)]


def said(found: Reading | None) -> str:
    """In the words of the cases."""
    if found is None:
        return "nothing"
    words = [] if found.step is None else [f"step {found.step}"]
    words += [] if found.total_steps is None else [f"total {found.total_steps}"]
    words += [] if found.loss is None else [f"loss {found.loss}"]
    words += [f"rate {rate.per_s:.10g} {rate.counted}" for rate in found.rates[:1]]
    words += [] if found.eta_s is None else [f"eta {found.eta_s:.0f}"]
    return ", ".join(words)


@pytest.mark.parametrize(("line", "expected"), cases())
def test_what_a_line_says(line: str, expected: str) -> None:
    assert said(read_line(line)) == expected


@pytest.mark.parametrize("left", ["14:", "14:1", "6:55:", "1:", "6:55:,44"])
def test_a_time_left_that_was_cut_is_not_known(left: str) -> None:
    reading = read_line(f" 22%|██▏       | 220/1000 [04:11<{left},  1.14s/it]")
    assert reading is not None
    assert (reading.step, reading.total_steps, reading.eta_s) == (220, 1000, None)


def test_the_unit_that_was_printed_is_kept() -> None:
    def printed(line: str) -> list[str]:
        found = read_line(line)
        return [rate.printed for rate in found.rates] if found else []

    assert printed("step 5 loss 2 12.30 Ktok/s 2.88 s/it") == ["12.30 Ktok/s", "2.88 s/it"]
    assert printed("  1%|▏ | 24/1752 [01:08<1:22:56,  2.88s/it]") == ["2.88s/it"]
    assert printed("step 1/2 tok/sec: 529,882") == ["tok/sec: 529,882"]


def test_a_rate_of_one_device_is_not_taken_for_the_whole() -> None:
    titan = read_line(TITAN + "step:  4  loss:  7.6  tps: 10,050  tflops: 314.71")
    named = read_line("step 4/9 800 tok/s/GPU")
    whole = read_line("step 4/9 800 tok/s")
    assert titan and titan.rates[0].per_device and named and named.rates[0].per_device
    assert whole and not whole.rates[0].per_device


PIECES = [
    *("step", "loss", "it/s", "s/it", "Ktok/s", "tok", "eta", "nan", "iter", "time", "ms", "tps", "dt", "it[", "%|"),
    *("0:01", "global_step", "İ", "１", "²", "e999"),
]
WORDS = st.sampled_from([*"0123456789.,:=/%|[]()<>eE+- '\"", *PIECES, " per ", "RunningAvgSamplesPerSec="])


@given(st.one_of(st.text(), st.lists(WORDS, max_size=60).map("".join)))
@example("step " + "9" * 400)
@example("loss " + "9" * 400 + " it/s " + "9" * 400)
@example("5%|#| ²/² [0:0<0:0, ²it/s]")
def test_any_line_can_be_read(line: str) -> None:
    for piece in plain_lines(line):
        found = read_line(piece)
        assert found is None or found != Reading()
        for rate in found.rates if found else ():
            assert math.isfinite(rate.per_s) and rate.per_s >= 0 and rate.printed


@pytest.mark.parametrize("filler", ["step", "a", "1", "1,", "1e1", " ", "step 1 ", "it/s ", "1 h ", "[1] ", "'loss': "])
def test_no_line_takes_long(filler: str) -> None:
    """Long lines made to go back and forth in: this would take minutes if the expressions could."""
    for end in (" step x", "%| it/s x", " tokens per second", " eta dt: tps"):
        read_line("loss dt:" + filler * 1000 + end)
        read_line(filler * (900 // len(filler)) + end)
