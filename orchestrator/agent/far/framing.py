"""Frames: 4 bytes header length, 4 bytes body length (both big-endian), an ASCII JSON object, the body's bytes.

Rule: sizes are bounded and checked before anything is allocated; a malformed frame is an error, never skipped.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: typing takes as long to import as json
    from typing import Any, Dict, List, Tuple

    Header = Dict[str, Any]
    Frame = Tuple[Header, bytes]

MAX_HEADER_BYTES = 16 * 1024 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024


class FrameError(Exception):
    """The stream is not what it should be. There is no way back into step: end the connection."""


def encode_frame(header: Header, body: bytes = b"") -> bytes:
    """Raises FrameError when it would be too large."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_HEADER_BYTES or len(body) > MAX_BODY_BYTES:
        raise FrameError("a frame of %d + %d bytes is too large" % (len(text), len(body)))
    return b"".join((len(text).to_bytes(4, "big"), len(body).to_bytes(4, "big"), text, body))


class FrameDecoder:
    """Bytes in any pieces -> whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """Raises FrameError."""
        self._buffer += data
        frames = []
        start = 0
        while True:
            end = self._frame_end(start)
            if end is None or end > len(self._buffer):
                break
            frames.append(self._parse(start, end))
            start = end
        if start:
            del self._buffer[:start]
        return frames

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def _frame_end(self, start: int) -> int | None:
        if len(self._buffer) - start < 8:
            return None
        header_size = int.from_bytes(self._buffer[start : start + 4], "big")
        body_size = int.from_bytes(self._buffer[start + 4 : start + 8], "big")
        if header_size > MAX_HEADER_BYTES or body_size > MAX_BODY_BYTES:
            seen = bytes(self._buffer[start : start + 64])
            raise FrameError("a frame announces %d + %d bytes; the stream begins %r" % (header_size, body_size, seen))
        return start + 8 + header_size + body_size

    def _parse(self, start: int, end: int) -> Frame:
        header_end = start + 8 + int.from_bytes(self._buffer[start : start + 4], "big")
        with memoryview(self._buffer) as view:  # slices of the bytearray itself would be copied twice
            text, body = bytes(view[start + 8 : header_end]), bytes(view[header_end:end])
        try:
            header = json.loads(text.decode("ascii"))
        except ValueError as error:
            raise FrameError("a frame's header is not JSON: %r" % text[:80]) from error
        if not isinstance(header, dict):
            raise FrameError("a frame's header is not an object: %r" % text[:80])
        return header, body
