"""Ship the payload as an immutable release and switch to it; or switch back.

Rule: the live release is whole at every moment, the old one or the new one. A run that is live keeps its own release.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.agent.tree import (
    OnProgress,
    TreeSource,
    push_tree,
    scan_folder,
    scan_git_revision,
    switch_current,
)
from orchestrator.agent.tree_plan import plan_push
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Payload, Target
from orchestrator.operations.session import agent_session, require_payload, take_lease, who_asks
from orchestrator.reports.deploy import DeployReport, RollbackReport
from orchestrator.transport.tracing import Trace

KEEP_RELEASES = 10


async def deploy(
    target: Target,
    *,
    revision: str | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    trace: Trace | None = None,
) -> DeployReport:
    """Raises TransferError (nothing switched), BusyError, and what connecting raises."""
    payload = require_payload(target)
    store = f"{target.base}/releases"
    mended: tuple[str, ...] = ()
    kept: str | None = None
    # While the files are read the connection is made; a mistake in the files is told either way.
    reading = asyncio.ensure_future(asyncio.to_thread(_read_payload, payload, revision))
    async with _seen_to(reading), agent_session(target, trace) as session:
        state = await _state(session, target)
        source = await reading
        if dry_run:
            plan = await plan_push(session, source, store)
            files_sent, bytes_sent = plan.files_missing, plan.bytes_missing
        else:
            await take_lease(session, target)
            pushed = await push_tree(
                session,
                source,
                store,
                provenance=_provenance(payload),
                on_progress=on_progress,
                mend=state["live_run"] is None,  # a run goes on with the code that it began with
            )
            mended, kept = pushed.mended, pushed.kept
            files_sent, bytes_sent = pushed.files_sent, pushed.bytes_sent
            await switch_current(session, target.base, source.tree_hash)
            await session.request("prune_releases", base=target.base, keep=KEEP_RELEASES, in_use=[])
    files = [entry for entry in source.entries if entry.kind == "file"]
    git = source.git
    return DeployReport(
        target=target.name,
        release=source.tree_hash,
        previous=state["current"],
        files=len(files),
        bytes_total=sum(entry.size for entry in files),
        files_sent=files_sent,
        bytes_sent=bytes_sent,
        dry_run=dry_run,
        git_commit=git.commit if git else None,
        git_branch=git.branch if git else None,
        git_dirty_files=len(git.dirty_files) if git else None,
        live_run=state["live_run"],
        mended=mended,
        kept=kept,
    )


async def rollback(target: Target, *, release: str | None = None, trace: Trace | None = None) -> RollbackReport:
    """release: a hash or its beginning; None: the one before. Raises UsageError listing what there is."""
    async with agent_session(target, trace) as session:
        await take_lease(session, target)
        state = await _state(session, target)
        listed = await session.request("list_releases", base=target.base)
        wanted = _choose_release(listed.header, release, target)
        if wanted != state["current"]:
            await switch_current(session, target.base, wanted)
    return RollbackReport(target.name, wanted, state["current"], state["live_run"])


def _choose_release(listed: Mapping[str, Any], wanted: str | None, target: Target) -> str:
    there: list[str] = listed["releases"]
    if wanted is None:
        previous = listed["previous"]
        if previous in there:
            return str(previous)
        raise UsageError(
            f"{target.name} has no release before this one", way_out="orch deploy   the next one can be rolled back"
        )
    matches = [name for name in there if name.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    raise UsageError(
        f"{len(matches)} releases on {target.name} begin with {wanted!r}",
        evidence="there are: " + (", ".join(name[:12] for name in there) or "none"),
        way_out="orch rollback --to RELEASE",
    )


@asynccontextmanager
async def _seen_to(reading: asyncio.Future[TreeSource]) -> AsyncIterator[None]:
    """What fails here must not leave a reading that nobody asks for its result."""
    try:
        yield
    finally:
        await asyncio.gather(reading, return_exceptions=True)


async def _state(session: AgentSession, target: Target) -> dict[str, str | None]:
    facts = (await session.request("run_facts", base=target.base)).header
    live = facts["live"]
    return {
        "current": facts["release"].rsplit("/", 1)[-1] if facts["release"] else None,
        "live_run": str((live["content"] or {}).get("run_id") or "unknown") if live["held"] else None,
    }


def _read_payload(payload: Payload, revision: str | None) -> TreeSource:
    """Blocks while it reads and hashes."""
    if revision is not None:
        return scan_git_revision(payload.folder, revision, payload.exclude)
    return scan_folder(payload.folder, payload.exclude)


def _provenance(payload: Payload) -> dict[str, object]:
    """Kept beside the release, with the git facts: where it came from."""
    return {
        "payload": payload.name,
        "deployed_by": who_asks(),
        "deployed_at_s": time.time(),
        "exclude": list(payload.exclude),
    }
