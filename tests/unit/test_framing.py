"""Frames survive any chunking, and nothing malformed is taken for a frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.far import framing
from orchestrator.agent.far.framing import FrameDecoder, FrameError, encode_frame

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
frames = st.lists(st.tuples(st.dictionaries(st.text(), values, max_size=4), st.binary(max_size=200)), max_size=6)


@given(frames, st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=30))
def test_any_chunking_gives_the_same_frames(sent, sizes):
    stream = b"".join(encode_frame(header, body) for header, body in sent)
    decoder, got, at, turn = FrameDecoder(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        got += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == sent
    assert decoder.pending == 0


@given(st.binary(min_size=8, max_size=300))
def test_noise_is_an_error_or_an_unfinished_frame_never_a_crash(noise):
    try:
        FrameDecoder().feed(noise)
    except FrameError as error:
        assert str(error)


def test_size_is_refused_before_the_bytes_are_waited_for():
    with pytest.raises(FrameError, match="announces"):
        FrameDecoder().feed((framing.MAX_HEADER_BYTES + 1).to_bytes(4, "big") + bytes(4))
    with pytest.raises(FrameError, match="announces"):
        FrameDecoder().feed(b"Welcome to gpu-box!\n")


def test_a_header_that_is_no_object_is_refused():
    with pytest.raises(FrameError, match="object"):
        FrameDecoder().feed((2).to_bytes(4, "big") + bytes(4) + b"[]")


def test_too_large_is_refused_when_sent(monkeypatch):
    monkeypatch.setattr(framing, "MAX_BODY_BYTES", 10)
    with pytest.raises(FrameError, match="too large"):
        encode_frame({}, b"x" * 11)
