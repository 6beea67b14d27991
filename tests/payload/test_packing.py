"""Documents that share a row: none lost, none cut short, none seen by another; and a pack keeps its number for ever."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from anchors import PADDING
from drafter import Drafter
from feed import document_positions, make_batch
from forward import step_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from order import grow
from packing import pack, pack_rows
from prepare import Prepared
from rows import Rows, rows_of
from tiny import tiny_config, tiny_drafter, tiny_target


@given(lengths=st.lists(st.integers(1, 20), max_size=60), width=st.integers(20, 50))
@settings(max_examples=100, deadline=None)
def test_every_document_is_in_one_pack_that_holds_it(lengths, width):
    packs = pack(lengths, width)
    assert sorted(member for members in packs for member in members) == list(range(len(lengths)))
    filled = sorted(sum(lengths[member] for member in members) for members in packs)
    assert not filled or filled[-1] <= width
    # Best fit: no two packs would have gone into one.
    assert len(filled) < 2 or filled[0] + filled[1] > width


def documents(lengths, seed=0):
    chance = torch.Generator().manual_seed(seed)
    rows = [torch.randint(2, 40, (length,), generator=chance).tolist() for length in lengths]
    return rows_of([(row, [place >= 1 for place in range(len(row))]) for row in rows])


def joined(*parts: Rows) -> Rows:
    return Rows([part._parts[0] for part in parts])


def test_data_that_grows_changes_no_pack():
    before, more = documents([9, 3, 7, 12, 4]), documents([5, 15, 6], seed=1)
    old, grown = pack_rows(before, 16), pack_rows(joined(before, more), 16)
    assert [old[number] for number in range(len(old))] == [grown[number] for number in range(len(old))]
    assert sorted(row for number in range(len(old), len(grown)) for row in grown[number]) == [5, 6, 7]


def test_a_document_longer_than_a_row_has_its_own():
    assert [pack_rows(documents([30, 4, 5]), 16)[number] for number in (0, 1)] == [[0], [1, 2]]


def prepared(rows: Rows, width: int, target) -> Prepared:
    packs = pack_rows(rows, width)
    chapters = grow((), met=0, rows=len(packs))
    return Prepared(Path(), target, SimpleNamespace(end_id=0), rows, chapters, width, None, packs=packs)


@pytest.fixture(scope="module")
def packed():
    config, target = tiny_config(train__pack=True, train__anchors=6), tiny_target()
    return config, prepared(documents([9, 11, 12, 7, 8, 3]), 32, target)


def test_a_batch_of_packs_holds_whole_documents_and_gives_each_its_anchors(packed):
    config, ready = packed
    batch = make_batch(1, ready, config)
    assert sorted(batch.rows) == [0, 1, 2, 3, 4, 5]
    assert batch.token_count == 9 + 11 + 12 + 7 + 8 + 3
    assert batch.tokens.shape == (2, 32)
    seen, members = [], iter(batch.rows)
    for row in range(2):
        numbers = batch.document[row][batch.document[row] != PADDING].unique().tolist()
        for number in numbers:
            here = batch.document[row] == number
            tokens, learned = ready.rows.read(next(members))
            assert torch.equal(batch.tokens[row][here], tokens)
            assert torch.equal(batch.learned[row][here], learned)
            anchored = here[batch.anchors[row]] & batch.kept[row]
            seen.append(int(anchored.sum()))
            # What the target read is what it reads of the document alone.
            alone = ready.target.features(tokens[None])[0]
            torch.testing.assert_close(batch.features[row][here], alone)
    assert min(seen) >= 1 and sum(seen) == int(batch.kept.sum())


def test_no_document_of_a_packed_row_is_seen_by_another(packed):
    """The other documents are other text: bit for bit the same hidden states of the blocks, loss and gradients."""
    config, ready = packed
    batch = make_batch(1, ready, config)
    drafter: Drafter = tiny_drafter(ready.target)
    row, number = 0, int(batch.document[0, batch.anchors[0][batch.kept[0]][-1]])
    mine = batch.document == number
    mine[1 - row] = False
    own = batch.kept & mine.gather(1, batch.anchors)
    assert own.any() and (batch.document[row] != number).any()

    def outcome(others: int):
        chance = torch.Generator().manual_seed(others)
        tokens = torch.where(mine, batch.tokens, torch.randint(2, 40, batch.tokens.shape, generator=chance))
        features = ready.target.features(tokens, document_positions(batch.document))
        changed = dataclasses.replace(batch, tokens=tokens, features=features, kept=own)
        found = step_loss(changed, ready.target, drafter, 1, config)
        drafter.zero_grad()
        found.loss.backward()
        return features[mine], found.loss, drafter.fc.weight.grad

    one, two = outcome(1), outcome(2)
    assert all(torch.equal(first, second) for first, second in zip(one, two, strict=True))
    leaking = dataclasses.replace(batch, document=torch.zeros_like(batch.document))
    assert not torch.equal(ready.target.features(batch.tokens, document_positions(leaking.document))[mine], one[0])
