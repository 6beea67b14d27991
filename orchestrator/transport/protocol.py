"""What a transport is: it starts one argv somewhere and moves bytes. Nothing else.

Rule: a lost link is never a result. `wait` gives an ExitStatus only if the far side reported one;
otherwise it raises OutcomeUnknownError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ExitStatus:
    """How a remote process ended. Killed by signal n: code is 128 + n, as a shell says it."""

    code: int


@dataclass(frozen=True)
class Completed:
    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes


class RemoteProcess(Protocol):
    """A running remote command with three binary streams."""

    async def write(self, data: bytes) -> None:
        """Write to its stdin and wait until the transport can take more."""
        ...

    async def write_eof(self) -> None: ...

    async def read(self, limit: int = 65536) -> bytes:
        """At most `limit` bytes of stdout; b"" at its end."""
        ...

    async def read_stderr(self, limit: int = 65536) -> bytes: ...

    async def wait(self) -> ExitStatus:
        """Raises OutcomeUnknownError when the link went before the far side reported an end."""
        ...

    async def abort(self) -> None:
        """Let go of it: close the channel and end every local helper process. The far side may go on."""
        ...


class Transport(Protocol):
    """One connection to one host (or to this machine)."""

    @property
    def label(self) -> str:
        """For messages: `root@10.1.2.6`."""
        ...

    async def start(self, argv: Sequence[str]) -> RemoteProcess:
        """Start argv there. Raises UnreachableError, HostKeyError, AuthError before anything was executed."""
        ...

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        """A local command line that runs argv there on the caller's terminal."""
        ...

    async def close(self) -> None: ...
