"""Make a record for a training that orch did not start. The training is not touched."""

from __future__ import annotations

import secrets
import time

from orchestrator import __version__
from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import BusyError, PreflightError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.runspec import build_run_spec, new_run_id
from orchestrator.operations.session import agent_and_config, require_payload, take_lease, who_asks
from orchestrator.reports.adopt import AdoptReport
from orchestrator.transport.tracing import Trace

LIMIT_S = 90.0


async def adopt(
    target: Target,
    wanted: str | None,
    *,
    pid: int | None = None,
    socket: str | None = None,
    trace: Trace | None = None,
) -> AdoptReport:
    """wanted: the tmux session; None: the payload's. pid: of the training, as it is numbered in the container; None:
    the only one. Raises BusyError (a run is live), PreflightError (nothing there is a training, or several may be)."""
    payload = require_payload(target)
    name = wanted or payload.session
    if name is None:
        raise UsageError(
            f"no session was named, and payload {payload.name} has no `session:`", way_out="orch adopt SESSION"
        )
    async with agent_and_config(target, trace) as (session, config):
        await take_lease(session, target)
        now_s = time.time()
        who = who_asks()
        run_id = new_run_id(now_s, secrets.token_hex(2))
        spec = build_run_spec(
            target, payload, run_id=run_id, settings={}, resume_from=None, who=f"adopted by {who}", now_s=now_s
        )
        try:
            reply = await session.request(
                "adopt_session",
                base=target.base,
                session=name,
                socket=socket,
                pid=pid,
                run_id=run_id,
                spec={**spec, "settings": {}},
                who=who,
                orch_version=__version__,
                container=await config,
                expected=dict(payload.expected.hashes),
                timeout_s=LIMIT_S,
            )
        except AgentOpError as error:
            raise _said(error, name) from error
    told = reply.header
    return AdoptReport(
        target=target.name,
        label=target.label,
        session=name,
        run_id=str(told["run_id"]),
        pid=int(told["pid"]),
        command=tuple(told["argv"]),
        folder=str(told["cwd"]),
        started_at=float(told["started_at"]),
        log=str(told["log"]),
        notes=tuple(told["notes"]),
    )


def _said(error: AgentOpError, name: str) -> Exception:
    if error.kind == "busy":
        return BusyError(error.what, evidence=error.evidence, way_out="orch status")
    if error.kind == "missing":
        way_out = "orch adopt SESSION   one that is there\norch adopt SESSION --socket PATH   of another tmux server"
        return PreflightError(f"{error.what}; nothing was adopted", evidence=error.evidence, way_out=way_out)
    if error.kind == "several":
        way_out = f"orch adopt {name} --pid PID   the one that is meant"
        return PreflightError(f"{error.what}; nothing was adopted", evidence=error.evidence, way_out=way_out)
    return error
