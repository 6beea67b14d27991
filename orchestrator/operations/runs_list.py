"""The runs of a target, as `orch runs` shows them: from the target, or from the index where that cannot be asked."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from orchestrator.errors import (
    AuthError,
    ContainerError,
    HostKeyError,
    OrchError,
    OutcomeUnknownError,
    UnreachableError,
)
from orchestrator.inventory.model import Target
from orchestrator.ledger.run_query import RunQuery
from orchestrator.operations.session import agent_session
from orchestrator.transport.tracing import Trace

if TYPE_CHECKING:
    from orchestrator.operations.ledger import Listing
    from orchestrator.reports.runs import RunsReport

CANNOT_TELL = (UnreachableError, HostKeyError, AuthError, ContainerError, OutcomeUnknownError)


async def list_runs(
    target: Target, query: RunQuery, *, sync: bool = False, gone: bool = False, trace: Trace | None = None
) -> tuple[RunsReport, OrchError | None]:
    """sync: ask for every run, whatever the index knows; gone: those that are only in the index. The error: why the
    target could not be asked, where the index answers for it. Raises what connecting raises where it cannot."""
    loading = asyncio.ensure_future(asyncio.to_thread(_import_ledger))
    answer: Listing | None = None
    error: OrchError | None = None
    try:
        async with agent_session(target, trace) as session:
            await loading
            from orchestrator.ledger.store import Index
            from orchestrator.operations.ledger import ask_listing, place_of

            index = Index(heal=True)
            if sync:
                await asyncio.to_thread(index.check)
            recalled = await asyncio.to_thread(index.recall, place_of(target))
            answer = await ask_listing(session, target, index, recalled, anew=sync)
    except CANNOT_TELL as found:
        error = found
    await loading
    from orchestrator.ledger.store import Index
    from orchestrator.operations.ledger import from_index, place_of, report_of

    age_s = None
    if error is not None:
        index = Index(heal=True)
        recalled = await asyncio.to_thread(index.recall, place_of(target))
        if recalled.seen_at is None:
            raise error
        age_s, answer = max(0.0, time.time() - recalled.seen_at), from_index(recalled)
    assert answer is not None
    return report_of(target, query, answer, sync=sync, gone=gone, age_s=age_s, notes=index.notes), error


def _import_ledger() -> None:
    """Takes as long as the connection takes: both at once."""
    import orchestrator.operations.ledger  # noqa: F401
