"""What runs on a target and how it goes: one agent, one round of questions, nothing changed."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.inventory.model import Target
from orchestrator.ledger.records import parse_run_record
from orchestrator.operations.session import agent_session
from orchestrator.probes.gpu import FIELDS, parse_gpu_csv
from orchestrator.probes.log import find_traceback
from orchestrator.probes.text import one_line, plain_text
from orchestrator.probes.training import RunPhase
from orchestrator.probes.values import as_float, as_int, as_str
from orchestrator.reports.status import StatusReport
from orchestrator.transport.tracing import Trace

LOG_TAIL_BYTES = 256 * 1024
LAST_LINES = 5
GPU_DEADLINE_S = 10.0
GPU_QUESTION = {
    "argv": ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"],
    "timeout_s": GPU_DEADLINE_S,
}


async def status(target: Target, *, trace: Trace | None = None) -> StatusReport:
    """Raises what connecting raises. A GPU that cannot be asked is part of the answer."""
    async with agent_session(target, trace) as session:
        facts, asked = await asyncio.gather(
            session.request("run_facts", base=target.base, log_tail_bytes=LOG_TAIL_BYTES),
            session.request("run_batch", commands=[GPU_QUESTION]),
        )
    tail = facts.body.decode("utf-8", "replace")
    run = parse_run_record(facts.header)
    smi: dict[str, Any] = asked.header["results"][0]
    failed = run is not None and (
        run.state.phase is RunPhase.ENDED_UNKNOWN or (run.state.exit is not None and not run.state.exit.succeeded)
    )
    traceback = find_traceback(tail) if failed else None
    return StatusReport(
        target=target.name,
        label=target.label,
        now_s=as_float(facts.header.get("now")),
        run=run,
        release=as_str(facts.header.get("release")),
        disk_free_bytes=as_int(facts.header.get("disk_free_bytes")),
        gpus=parse_gpu_csv(smi["stdout"]).gpus if smi["exit_code"] == 0 else None,
        gpu_error=_gpu_error(smi),
        traceback=traceback.text if traceback else None,
        last_lines=tuple(plain_text(tail).rstrip("\n").splitlines()[-LAST_LINES:]),
    )


def _gpu_error(smi: dict[str, Any]) -> str | None:
    if smi["exit_code"] == 0:
        return None
    if smi["timed_out"]:
        return f"nvidia-smi did not answer within {GPU_DEADLINE_S:g} s"
    if smi["exit_code"] == 127:
        return "nvidia-smi is not installed"
    return one_line(smi["stderr"] or smi["stdout"] or f"nvidia-smi: exit code {smi['exit_code']}")
