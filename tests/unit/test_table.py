"""How numbers and columns are said."""

import pytest

from orchestrator.reports.table import bytes_text, duration_text, rate_text, render_rows


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (353_000_000, "353 MB"), (2e12, "2.0 TB")],
)
def test_bytes(count: float | None, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-5, "-"), (0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_rates() -> None:
    assert (rate_text(None), rate_text(21_500), rate_text(12.3)) == ("-", "21.5 Ktok/s", "12 tok/s")


def test_rows_line_up_and_end_without_blanks() -> None:
    assert render_rows([("a", "b"), ("long", "c", "d")]) == "a     b\nlong  c  d"
