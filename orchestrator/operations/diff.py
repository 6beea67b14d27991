"""What differs between two runs of a target, or between a run and the target as it is now. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.inventory.model import Target
from orchestrator.operations.session import agent_and_config, agent_session
from orchestrator.transport.tracing import Trace

if TYPE_CHECKING:
    from orchestrator.reports.diff import DiffReport


async def diff(target: Target, words: Sequence[str], *, trace: Trace | None = None) -> DiffReport:
    """words: none, B, or A and B; each a run's id or its beginning, last-good, latest or now.

    Raises UsageError when there are no such runs, or one has no fingerprint."""
    loading = asyncio.ensure_future(asyncio.to_thread(_import_comparison))
    if "now" in words:  # the target as it is: comparison.NOW, which is being imported
        async with agent_and_config(target, trace) as (session, config):
            await loading
            from orchestrator.operations.comparison import ask_sides, report_of

            told = await ask_sides(session, target, words, config)
    else:
        async with agent_session(target, trace) as session:
            await loading
            from orchestrator.operations.comparison import ask_sides, report_of

            told = await ask_sides(session, target, words, None)
    return await report_of(target, told)


def _import_comparison() -> None:
    """Takes as long as the connection takes: both at once."""
    import orchestrator.operations.comparison  # noqa: F401
