"""Text in a number of columns: wide and combining characters, and numbers that are whole or not there."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.text import plain_text
from orchestrator.reports.fitting import clip, fold, pack, text_width

TEXT = st.text(alphabet=st.sampled_from([*"abc 0123456789.,:/", "数", "é", "e\u0301"[1], "…", "👍", "｡"]), max_size=60)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("abc", 3), ("損失", 4), ("e\u0301", 1), ("ｱ", 1), ("Ａ", 2), ("👍", 2), ("a\u200db", 2)],
)
def test_columns(text: str, columns: int) -> None:
    assert text_width(text) == columns


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [
        ("short", 5, "short"),
        ("longer text", 7, "longer…"),
        ("loss 1.2345 and more", 9, "loss…"),
        ("loss 1.2345 and more", 13, "loss 1.2345 …"),
        ("loss 1.2345 and more", 12, "loss…"),
        ("12345678", 4, "…"),
        ("損失損失", 5, "損失…"),
        ("損失損失", 4, "損…"),
        ("abc", 0, ""),
    ],
)
def test_clip(text: str, width: int, clipped: str) -> None:
    assert clip(text, width) == clipped


@given(TEXT, st.integers(1, 70))
def test_clipped_text_fits_and_holds_only_whole_numbers(text: str, width: int) -> None:
    clipped = clip(text, width)
    assert text_width(clipped) <= width
    if clipped != text:
        assert clipped.endswith("…") and text.startswith(clipped[:-1].rstrip())
        whole = re.findall(r"[0-9.,:/]*[0-9][0-9.,:/]*", text)
        assert all(number in whole for number in re.findall(r"[0-9.,:/]*[0-9][0-9.,:/]*", clipped[:-1]))


@given(TEXT, st.integers(2, 30))
def test_folded_text_fits_and_is_all_there(text: str, width: int) -> None:
    lines = fold(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.lists(TEXT, max_size=8), st.integers(1, 40))
def test_packed_parts_fit(parts: list[str], width: int) -> None:
    assert all(text_width(line) <= width for line in pack(parts, width))


def test_parts_are_packed_without_breaking_them() -> None:
    assert pack(["step 120/700", "loss 1.234", "ETA 2 min"], 24) == ["step 120/700, loss 1.234", "ETA 2 min"]


@given(st.text(max_size=200))
def test_any_text_is_measured(text: str) -> None:
    assert text_width(clip(plain_text(text), 10)) <= 10
