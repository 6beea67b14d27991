"""How a far command proves that it began, and that exit code 255 is its own.

Rule: what comes before the marker is noise of the far shell and never reaches a reader; a command whose
marker did not come on both streams never started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence

from orchestrator.errors import OutcomeUnknownError
from orchestrator.transport.protocol import ExitStatus, RemoteProcess

# A first word that starts with a dash would be read as an option of bash's exec.
_ANNOUNCE = (
    'm=$1; shift; printf %s "$m" && printf %s "$m" >&2 || exit 125; case $1 in -*) set -- /usr/bin/env -- "$@";; esac; '
)
_EXEC = _ANNOUNCE + 'unset m; exec "$@"'
# ssh uses 255 for itself, so a 255 of the command is confirmed by a second marker. The shell that waits must
# not tell about a killed child on the command's stderr.
_GUARD = (
    _ANNOUNCE + 'exec 9>&2 2>/dev/null; (exec 2>&9 9>&-; unset m; exec "$@"); '
    'c=$?; [ $c -ne 255 ] || printf %s "$m" >&9; exit $c'
)

NOISE_KEPT_BYTES = 16 * 1024
LAST_WORDS_LIMIT_S = 2.0
"""How long a finished ssh may keep its stderr open before it counts as ended."""


def new_marker() -> str:
    return f"<orch-{os.urandom(12).hex()}>"


def marked(marker: str, argv: Sequence[str]) -> list[str]:
    """argv that announces itself and then becomes `argv`. 126 and 127 as a shell gives them."""
    return ["/bin/sh", "-c", _EXEC, "sh", marker, *argv]


def guarded(marker: str, argv: Sequence[str]) -> list[str]:
    """As `marked`, for a carrier that has a 255 of its own: the command's 255 is followed by the marker."""
    return ["/bin/sh", "-c", _GUARD, "sh", marker, *argv]


class MarkerSearch:
    """Fed bytes, drops everything up to the marker."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self._kept = bytearray()

    @property
    def noise(self) -> bytes:
        """The last of what came, while the marker has not."""
        return bytes(self._kept)

    def feed(self, data: bytes) -> bytes | None:
        """What follows the marker, or None while it has not come."""
        start = max(0, len(self._kept) - len(self._marker))
        self._kept += data
        at = self._kept.find(self._marker, start)
        if at < 0:
            del self._kept[: -(NOISE_KEPT_BYTES + len(self._marker))]
            return None
        rest = bytes(self._kept[at + len(self._marker) :])
        del self._kept[at:]
        return rest


class TrailerFilter:
    """Fed a stream, gives it back without the marker, and remembers whether it was there."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self._held = b""
        self.seen = False

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        self._held = b""
        if self._marker in data:
            self.seen = True
            data = data.replace(self._marker, b"")
        for size in range(min(len(self._marker) - 1, len(data)), 0, -1):
            if data.endswith(self._marker[:size]):
                self._held = data[-size:]
                return data[:-size]
        return data

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


class MarkedProcess:
    """A RemoteProcess around another one whose command was made by `marked` or `guarded`."""

    def __init__(self, inner: RemoteProcess, marker: str, *, label: str, is_guarded: bool = False) -> None:
        self._inner = inner
        self._label = label
        self._is_guarded = is_guarded
        self._searches = (MarkerSearch(marker), MarkerSearch(marker))
        self._trailer = TrailerFilter(marker)
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._stderr_ended = False
        self._last_words = b""
        self._pulling = asyncio.Lock()

    def noise_text(self) -> str:
        """What came instead of, or before, the marker: stderr, then stdout."""
        parts = (self._searches[1].noise, self._searches[0].noise)
        return "\n".join(part.decode("utf-8", "replace").strip() for part in parts).strip()

    async def began(self) -> bool:
        """Waits for both markers. False: a stream ended without it, the command never started."""
        out, err = await asyncio.gather(
            self._skip(self._searches[0], self._inner.read), self._skip(self._searches[1], self._inner.read_stderr)
        )
        if out is None or err is None:
            return False
        self._stdout += out
        self._accept_stderr(err)
        return True

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    async def write_eof(self) -> None:
        await self._inner.write_eof()

    async def read(self, limit: int = 65536) -> bytes:
        if self._stdout:
            return _take(self._stdout, limit)
        return await self._inner.read(limit)

    async def read_stderr(self, limit: int = 65536) -> bytes:
        while not self._stderr and not self._stderr_ended:
            await self._pull_stderr()
        return _take(self._stderr, limit)

    async def wait(self) -> ExitStatus:
        status = await self._inner.wait()
        if not self._is_guarded or status.code != 255:
            return status
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_LIMIT_S):
                while not self._stderr_ended:  # bounded: the writer has ended
                    await self._pull_stderr()
        if not self._trailer.seen:
            raise link_lost(self._label, self._last_words.decode("utf-8", "replace"))
        return status

    async def abort(self) -> None:
        await self._inner.abort()

    async def _skip(self, search: MarkerSearch, read: Callable[[], Awaitable[bytes]]) -> bytes | None:
        while data := await read():
            rest = search.feed(data)
            if rest is not None:
                return rest
        return None

    async def _pull_stderr(self) -> None:
        async with self._pulling:
            if self._stderr_ended:
                return
            data = await self._inner.read_stderr()
            self._stderr_ended = not data
            self._accept_stderr(data)

    def _accept_stderr(self, data: bytes) -> None:
        if self._is_guarded:
            data = self._trailer.end() if self._stderr_ended else self._trailer.feed(data)
            self._last_words = (self._last_words + data)[-2048:]
        self._stderr += data


def link_lost(label: str, evidence: str = "") -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{label}: the connection was lost while a command ran; it may or may not have been done",
        evidence=evidence,
        way_out="look with `orch status` before you repeat it",
    )


def _take(buffer: bytearray, limit: int) -> bytes:
    taken = bytes(buffer[:limit])
    del buffer[:limit]
    return taken
