"""A tree over there, listed with hashes, without moving it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.far.manifest import FILE, LINK, ManifestError, tree_hash, unpack
from orchestrator.agent.far.scan import BUILT_IN_EXCLUDES
from orchestrator.agent.tree_push import transfer_error
from orchestrator.errors import TransferError

SCAN_LIMIT_S = 3600.0
LEFT_OUT = BUILT_IN_EXCLUDES
"""What `scan_folder` leaves out of a folder here, too: give it to `pull_tree` and the hashes agree."""


@dataclass(frozen=True)
class RemoteTree:
    tree_hash: str
    files: int
    size_bytes: int
    links: tuple[str, ...]
    odd: tuple[str, ...]
    """What cannot be moved: FIFOs, sockets, links that lead out, names with control characters."""


async def scan_remote(session: AgentSession, folder: str) -> RemoteTree:
    """Raises TransferError, DeadlineError, OutcomeUnknownError."""
    try:
        reply = await session.request("tree_scan", timeout_s=SCAN_LIMIT_S, path=folder, exclude=list(LEFT_OUT))
        entries = unpack(reply.body)
    except AgentOpError as error:
        raise transfer_error(session.label, error) from error
    except ManifestError as error:
        raise TransferError(f"{session.label}: {folder} cannot be read", evidence=str(error)) from error
    return RemoteTree(
        tree_hash=tree_hash(entries),
        files=sum(entry.kind == FILE for entry in entries),
        size_bytes=sum(entry.size for entry in entries),
        links=tuple(entry.path for entry in entries if entry.kind == LINK),
        odd=tuple(reply.header["odd"]),
    )
