"""Where publications lie: a folder of this machine, a folder on a target, or an object store.

Rule: whatever a shelf is, a publication on it is whole or not there, and `current` names the old one or the new one at
every moment.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from orchestrator.agent.client import AgentSession
from orchestrator.agent.errors import AgentOpError
from orchestrator.agent.tree import OnProgress, TreeSource, push_tree
from orchestrator.agent.tree_push import LOCK_WAIT_S, transfer_error
from orchestrator.errors import NotAsWantedError, PreflightError
from orchestrator.ledger.publications import Shelved, shelved
from orchestrator.operations.session import agent_session
from orchestrator.operations.where import JUDGE_AGAIN, Where
from orchestrator.transport.tracing import Trace

VERIFY_LIMIT_S = 3600.0


class Shelf(Protocol):
    async def look(self) -> Shelved: ...

    async def put(
        self, folder: Path, source: TreeSource, provenance: Mapping[str, object], on_progress: OnProgress | None
    ) -> int:
        """Bytes that travelled. A whole publication is there afterwards, not yet current."""

    async def switch(self, tree_hash: str, expected: Sequence[str | None] | None = None) -> str | None:
        """Reads every byte again, then switches. Answers what was current before. expected: what that may be."""

    async def prune(self, keep: int) -> tuple[str, ...]:
        """Tree hashes that were removed."""


@asynccontextmanager
async def open_shelf(where: Where, trace: Trace | None) -> AsyncIterator[Shelf]:
    """Raises what connecting raises, and for an object store UsageError where boto3 is missing."""
    if where.bucket:
        from orchestrator.operations.object_store import ObjectStore

        yield ObjectStore(where)
    elif where.target is not None:
        async with agent_session(where.target, trace) as session:
            yield FolderShelf(session, where)
    else:
        from orchestrator.transport.local import LocalTransport

        session = await AgentSession.open(LocalTransport(trace=trace), pythons=[sys.executable])
        try:
            yield FolderShelf(session, where)
        finally:
            await session.close()


class FolderShelf:
    """A folder, through an agent on the machine that has it."""

    def __init__(self, session: AgentSession, where: Where) -> None:
        self._session = session
        self._where = where

    async def look(self) -> Shelved:
        told = await self._ask("publications_list")
        there = shelved(self._where.text, told["publications"], current=told["current"], previous=told["previous"])
        return Shelved(there.where, there.current, there.previous, there.publications, tuple(told["unreadable"]))

    async def put(
        self, folder: Path, source: TreeSource, provenance: Mapping[str, object], on_progress: OnProgress | None
    ) -> int:
        pushed = await push_tree(
            self._session, source, self._where.folder, provenance=provenance, on_progress=on_progress
        )
        return pushed.bytes_sent

    async def switch(self, tree_hash: str, expected: Sequence[str | None] | None = None) -> str | None:
        told = await self._ask("publication_switch", tree_hash=tree_hash, expected=expected, lock_wait_s=LOCK_WAIT_S)
        before: str | None = told["before"]
        return before

    async def prune(self, keep: int) -> tuple[str, ...]:
        told = await self._ask("publications_prune", keep=keep, lock_wait_s=LOCK_WAIT_S)
        return tuple(told["removed"])

    async def _ask(self, op: str, **params: Any) -> dict[str, Any]:
        try:
            reply = await self._session.request(op, timeout_s=VERIFY_LIMIT_S, store=self._where.folder, **params)
        except AgentOpError as error:
            raise _refusal(self._where, error) from error
        return reply.header


def _refusal(where: Where, error: AgentOpError) -> Exception:
    text = f"{where.text}: {error.what}"
    if error.kind == "damaged":
        return NotAsWantedError(
            text + "; `current` is as it was",
            evidence=error.evidence,
            way_out="move that folder aside, then orch publish again",
        )
    if error.kind == "changed":
        return NotAsWantedError(text, evidence=error.evidence, way_out=JUDGE_AGAIN)
    if error.kind == "conflict":
        return PreflightError(text, evidence=error.evidence, way_out="publish into a folder that is orch's own")
    return transfer_error(where.text, error)
