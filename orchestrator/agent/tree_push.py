"""The near half of a push: say what the tree is, send what is missing, learn where it is now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.exchange import Exchange
from orchestrator.agent.far.blobs import pack_frames
from orchestrator.agent.far.manifest import ManifestError, json_unpack, pack, unique_blobs
from orchestrator.agent.tree_progress import OnProgress, ProgressCounter
from orchestrator.agent.tree_source import TreeSource
from orchestrator.errors import BusyError, OrchError, TransferError

LOCK_WAIT_S = 20.0
"""The agent of a push that was cut needs some seconds to notice; then its lock is free."""
PACK_BELOW_BYTES_PER_S = 20e6
"""Packing was measured at about 50 MB/s of one core; a link that is nearly as fast only waits for it."""


@dataclass(frozen=True)
class PushResult:
    tree_hash: str
    path: str
    """Of the release over there."""
    files_sent: int
    """Different contents, not names."""
    bytes_sent: int
    """Of file contents, before compression; 0 when nothing was missing."""
    bytes_copied: int
    """Over there, from other releases."""
    already_there: bool
    mended: tuple[str, ...] = ()
    """Files that somebody had edited or removed in place, and that are again as they were sent."""
    kept: str | None = None
    """Where the edited tree is kept."""


@dataclass(frozen=True)
class Switched:
    current: str
    previous: str | None
    """Tree hashes. None: there was no release before."""


async def push_tree(
    session: AgentSession,
    source: TreeSource,
    store: str,
    *,
    provenance: Mapping[str, object] | None = None,
    share: bool = False,
    mend: bool = False,
    on_progress: OnProgress | None = None,
) -> PushResult:
    """A whole, verified release in `store`, or nothing new there. The record keeps `provenance` and the git facts.
    mend: a release that is there and was edited in place is made anew, and the edited one kept beside it.
    share: what other trees of the store hold too becomes one file with theirs; for what nobody writes to.

    Raises TransferError, BusyError, OutcomeUnknownError (the link went: push again, what arrived is kept).
    """
    record = {"git": asdict(source.git) if source.git else None, **(provenance or {})}
    manifest = await asyncio.to_thread(pack, source.entries)
    params = {"store": store, "tree_hash": source.tree_hash, "provenance": record, "lock_wait_s": LOCK_WAIT_S}
    params.update(share=share, mend=mend)
    try:
        async with session.exchange("tree_push", body=manifest, **params) as exchange:
            reply = await exchange.receive()
            files_sent = bytes_sent = 0
            while not reply.final:
                files_sent, bytes_sent = await _send_missing(exchange, source, reply.body, on_progress)
                reply = await exchange.receive()
    except AgentOpError as error:
        raise transfer_error(session.label, error) from error
    return PushResult(
        tree_hash=source.tree_hash,
        path=reply.header["path"],
        files_sent=files_sent,
        bytes_sent=bytes_sent,
        bytes_copied=reply.header["copied_bytes"],
        already_there=reply.header["already_there"],
        mended=tuple(reply.header["mended"]),
        kept=reply.header["kept"],
    )


async def switch_current(session: AgentSession, base: str, tree_hash: str) -> Switched:
    """Make a release that is there the current one. Needs the lease on base. Raises TransferError."""
    try:
        reply = await session.request("switch_current", base=base, tree_hash=tree_hash)
    except AgentOpError as error:
        raise transfer_error(session.label, error) from error
    return Switched(reply.header["current"], reply.header["previous"])


def transfer_error(label: str, error: AgentOpError) -> OrchError:
    text = f"{label}: {error.what}"
    if error.kind == "busy":
        return BusyError(text, evidence=error.evidence)
    if error.kind == "disk_full":
        return TransferError(text, evidence=error.evidence, way_out="free some space over there and repeat it")
    return TransferError(text, evidence=error.evidence)


async def _send_missing(
    exchange: Exchange, source: TreeSource, listing: bytes, on_progress: OnProgress | None
) -> tuple[int, int]:
    blobs = unique_blobs(source.entries)
    try:
        missing = [blobs[index] for index in json_unpack(listing)]
    except (ManifestError, IndexError, TypeError) as error:
        raise TransferError("the agent asks for files that are not in the tree", evidence=str(error)) from error
    counter = ProgressCounter([size for _, size in missing], on_progress)
    link_is_slower = False
    frames = pack_frames(source.read_blobs([sha256 for sha256, _ in missing]), worth_packing=lambda: link_is_slower)
    try:
        # Reading and packing the next frame goes on while one is written.
        upcoming = asyncio.ensure_future(asyncio.to_thread(next, frames, None))
        while (frame := await upcoming) is not None:
            upcoming = asyncio.ensure_future(asyncio.to_thread(next, frames, None))
            header, body, raw_bytes = frame
            began = time.monotonic()
            await exchange.send(header, body)
            link_is_slower = len(body) < PACK_BELOW_BYTES_PER_S * (time.monotonic() - began)
            counter.add(raw_bytes)
    finally:
        # Let the thread leave the source before the caller does.
        await asyncio.gather(upcoming, return_exceptions=True)
    return len(missing), sum(size for _, size in missing)
