"""The data cursor: every row once a round, the same whatever the batches, and right when data grows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from order import Chapter, grow, rows_of_batch


def drawn(count, chapters, seed=7, batch=1):
    return [row for number in range(1, count // batch + 1) for row in rows_of_batch(number, batch, chapters, seed)]


def test_every_row_is_met_once_a_round_and_the_order_is_the_seeds():
    chapters = grow((), met=0, rows=10)
    rows = drawn(30, chapters)
    assert sorted(rows[:10]) == sorted(rows[10:20]) == sorted(rows[20:]) == list(range(10))
    assert rows[:10] != rows[10:20]
    assert rows == drawn(30, chapters) != drawn(30, chapters, seed=8)
    assert drawn(30, chapters, batch=3) == rows


@given(
    first=st.integers(1, 12),
    stretches=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=3),
    seed=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_growing_loses_no_row_and_repeats_none_before_all_are_met(first, stretches, seed):
    chapters, met, rows, seen = grow((), met=0, rows=first), 0, first, set()
    for more_met, more_rows in [*stretches, (60, 0)]:
        for row in drawn(met + more_met, chapters, seed)[met:]:
            seen = set() if len(seen) == rows else seen
            assert row not in seen
            assert row < rows
            seen.add(row)
        before = drawn(met + more_met, chapters, seed)
        met, rows = met + more_met, rows + more_rows
        chapters = grow(chapters, met=met, rows=rows)
        assert drawn(met, chapters, seed) == before


def test_data_that_shrinks_is_refused_and_data_that_stays_changes_nothing():
    chapters = grow((), met=0, rows=10)
    assert grow(chapters, met=5, rows=10) == chapters == (Chapter(0, 10),)
    with pytest.raises(ValueError, match="9 rows now, 10 then"):
        grow(chapters, met=5, rows=9)
