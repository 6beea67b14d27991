"""Fetch a run's folder: records, log, checkpoints. Equal files do not travel again."""

from __future__ import annotations

from pathlib import Path

from orchestrator.agent.tree import OnProgress, pull_tree
from orchestrator.inventory.model import Target
from orchestrator.operations.session import agent_session
from orchestrator.operations.which_run import facts_of_run
from orchestrator.reports.pull import PullReport
from orchestrator.transport.tracing import Trace


async def pull(
    target: Target,
    run_id: str | None,
    folder: Path | None,
    *,
    on_progress: OnProgress | None = None,
    trace: Trace | None = None,
) -> PullReport:
    """run_id: or its unique beginning, or `last`; None: the live or newest run. folder None: runs/<run id>.

    Raises UsageError, TransferError."""
    async with agent_session(target, trace) as session:
        state = await facts_of_run(session, target, run_id)
        run = state["run"]
        destination = folder or Path("runs") / run["id"]
        pulled = await pull_tree(session, run["folder"], destination, on_progress=on_progress)
    live = state["live"]["held"] and (state["live"]["content"] or {}).get("run_id") == run["id"]
    return PullReport(
        target=target.name,
        run_id=run["id"],
        folder=str(destination),
        files=pulled.files,
        files_received=pulled.files_received,
        bytes_received=pulled.bytes_received,
        left_out=pulled.left_out,
        live=bool(live),
        result=run["result"],
    )
