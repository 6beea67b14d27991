"""Rows come back from the disk as they were written, whatever the parts."""

from __future__ import annotations

import pytest
import torch
from anchors import PADDING
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import ENDS, LEARNED, TOKENS, RowWriter, open_rows, part_folders, rows_of

written = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=1, max_size=5), max_size=4)


@given(parts=st.lists(written, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_rows_are_read_as_written_and_keep_their_numbers(parts, tmp_path_factory):
    top = tmp_path_factory.mktemp("rows")
    for number, rows in enumerate(parts):
        writer = RowWriter(top / str(number))
        for row in rows:
            writer.add([token for token, _ in row], [mark for _, mark in row])
        writer.close()
    folders = [top / str(number) for number in range(len(parts))]
    wanted = [row for rows in parts for row in rows]
    if not wanted:
        with pytest.raises(ValueError, match="no training row"):
            open_rows(folders)
        return
    stored = open_rows(folders)
    assert len(stored) == len(wanted)
    assert stored.lengths.tolist() == [len(row) for row in wanted]
    for number, row in enumerate(wanted):
        tokens, learned = stored.read(number)
        assert list(zip(tokens.tolist(), learned.tolist(), strict=True)) == row


def test_a_batch_is_filled_and_cut_and_its_documents_numbered():
    rows = rows_of([([1, 2, 3, 4], [False, True, True, True]), ([5], [True]), ([6, 7], [True, False])])
    tokens, learned, document = rows.batch([[1], [0], [1, 2]], width=3, fill=9)
    assert tokens.tolist() == [[5, 9, 9], [1, 2, 3], [5, 6, 7]]
    assert learned.tolist() == [[True, False, False], [False, True, True], [True, True, False]]
    assert document.tolist() == [[0, PADDING, PADDING], [0, 0, 0], [0, 1, 1]]
    assert tokens.dtype == torch.int64


def write_part(folder, *rows):
    writer = RowWriter(folder)
    for row in rows:
        writer.add(row, [True] * len(row))
    writer.close()


def test_a_row_keeps_its_number_however_often_the_data_has_grown(tmp_path):
    for part in range(12):
        write_part(tmp_path / f"rows-{part}", [part])
    stored = open_rows(part_folders(tmp_path, "rows"))
    assert [int(stored.read(row)[0]) for row in range(12)] == list(range(12))


@pytest.mark.parametrize("name", [TOKENS, LEARNED, ENDS])
def test_a_part_that_was_cut_short_is_refused(tmp_path, name):
    write_part(tmp_path / "rows-0", [1, 2, 3], [4, 5])
    with (tmp_path / "rows-0" / name).open("r+b") as stream:
        stream.truncate((tmp_path / "rows-0" / name).stat().st_size // 2 // 4 * 4)
    with pytest.raises(ValueError, match="rows-0 is damaged"):
        open_rows(part_folders(tmp_path, "rows"))
