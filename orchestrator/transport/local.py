"""This machine as a transport: no login, no link.

Rule: the same promises as over SSH (126, 127, 128 + signal; abort ends it), kept by the same marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import UnreachableError
from orchestrator.transport.child import ChildProcess
from orchestrator.transport.marker import MarkedProcess, marked, new_marker
from orchestrator.transport.protocol import RemoteProcess
from orchestrator.transport.tracing import Trace, no_trace


class LocalTransport:
    def __init__(self, *, trace: Trace | None = None) -> None:
        self._trace = trace or no_trace

    @property
    def label(self) -> str:
        return "this machine"

    async def start(self, argv: Sequence[str]) -> RemoteProcess:
        marker = new_marker()
        self._trace(self.label, argv)
        try:
            child = await ChildProcess.spawn(marked(marker, argv), carrier=False)
        except (OSError, ValueError) as error:
            raise UnreachableError(f"{self.label}: {argv[0]} could not be started", evidence=str(error)) from error
        process = MarkedProcess(child, marker, label=self.label)
        try:
            if await process.began():
                return process
        except BaseException:
            await child.abort()
            raise
        await child.abort()
        raise UnreachableError(f"{self.label}: {argv[0]} could not be started", evidence=process.noise_text())

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    async def close(self) -> None:
        """Nothing is held."""


def is_folder(path: str) -> bool:
    """On this machine."""
    return Path(path).expanduser().is_dir()
