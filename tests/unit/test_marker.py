"""The start marker: nothing before it is read, nothing after it is lost, however the bytes are cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.transport.marker import MarkerSearch, TrailerFilter, new_marker


def pieces(data, cuts):
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.binary(), st.binary(), st.lists(st.integers(0, 500)))
def test_all_after_the_marker_and_nothing_before(noise, data, cuts):
    marker = new_marker()
    search, got = MarkerSearch(marker), None
    for piece in pieces(noise + marker.encode() + data, cuts):
        if got is None:
            got = search.feed(piece)
        else:
            got += piece
    assert got == data
    assert search.noise == noise


@given(st.binary(), st.binary(), st.lists(st.integers(0, 500)), st.booleans())
def test_a_trailer_is_seen_and_taken_out(data, tail, cuts, there):
    marker = new_marker()
    trailer = TrailerFilter(marker)
    whole = data + (marker.encode() if there else b"") + tail
    got = b"".join(trailer.feed(piece) for piece in pieces(whole, cuts)) + trailer.end()
    assert (got, trailer.seen) == (data + tail, there)


def test_noise_without_end_takes_no_memory():
    search = MarkerSearch(new_marker())
    for _ in range(100):
        assert search.feed(bytes(100_000)) is None
    assert len(search.noise) < 20_000


def test_a_beginning_of_the_marker_is_only_data():
    marker = new_marker()
    trailer = TrailerFilter(marker)
    part = marker.encode()[:-1]
    assert trailer.feed(part) + trailer.end() == part and not trailer.seen
