"""One snapshot from an agent that has it to one that is to have it: the frames pass through, unread and as packed.

Rule: the taking side says what is missing and compares every content; memory here is a few frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.exchange import Exchange
from orchestrator.agent.far.cache_move import merged
from orchestrator.agent.far.manifest import ManifestError, json_pack, json_unpack, unique_blobs
from orchestrator.agent.far.snapshots import parse_files
from orchestrator.agent.tree_progress import OnProgress, ProgressCounter
from orchestrator.errors import TransferError

DESCRIBE_LIMIT_S = 600.0


class SnapshotRelay:
    """`describe`, then `run`. Both raise AgentOpError, OutcomeUnknownError (again: what has come is kept)."""

    contents_sent = 0
    """Different contents that were missing."""
    bytes_sent = 0
    """Into the taking side: packed contents and the list of files."""
    linked = 0
    """Files that a kept snapshot over there holds too."""
    already_there = True

    def __init__(self, giving: AgentSession, taking: AgentSession, on_progress: OnProgress | None) -> None:
        self._giving = giving
        self._taking = taking
        self._on_progress = on_progress
        self._manifest: Mapping[str, Any] = {}
        self._path = ""
        self._body = b""

    async def describe(self, base: str, name: str) -> Mapping[str, Any]:
        """Its manifest."""
        reply = await self._giving.request("cache_describe", base=base, name=name, timeout_s=DESCRIBE_LIMIT_S)
        self._manifest, self._path, self._body = reply.header["manifest"], reply.header["path"], reply.body
        return self._manifest

    async def run(self, base: str, name: str, *, moved: Mapping[str, Any], who: str) -> None:
        """moved: goes into the manifest over there. Needs the lease on base."""
        params = {"base": base, "name": name, "manifest": self._manifest, "moved": moved, "who": who}
        self.bytes_sent += len(self._body)
        async with self._taking.exchange("cache_receive", body=self._body, **params) as arriving:
            reply = await arriving.receive()
            while not reply.final:
                await self._send(arriving, self._wanted(reply.body))
                reply = await arriving.receive()
        self.linked, self.already_there = reply.header["linked"], reply.header["already_there"]

    async def _send(self, arriving: Exchange, wanted: list[tuple[str, int]]) -> None:
        counter = ProgressCounter([size for _, size in wanted], self._on_progress)
        async with self._giving.exchange("tree_send", body=json_pack(wanted), path=self._path) as leaving:
            while not (frame := await leaving.receive()).final:
                await arriving.send({"packed": frame.header.get("packed")}, frame.body)
                self.bytes_sent += len(frame.body)
                counter.add(int(frame.header.get("raw_bytes") or 0))
        self.contents_sent += len(wanted)

    def _wanted(self, listing: bytes) -> list[tuple[str, int]]:
        """(a file that has it, bytes) for each content that is missing."""
        try:
            entries = merged(parse_files(json_unpack(self._body)["files"].encode("ascii"), dict(self._manifest)))
            places = {entry.sha256: entry.path for entry in entries}
            blobs = unique_blobs(entries)
            return [(places[sha256], size) for sha256, size in (blobs[index] for index in json_unpack(listing))]
        except (ManifestError, ValueError, KeyError, IndexError, TypeError) as error:
            raise TransferError("the agents do not agree on what is missing", evidence=str(error)) from error
