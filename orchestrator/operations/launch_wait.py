"""Wait until a run that was just launched got somewhere: a step, or its end.

Rule: the steps of status.json are pushed by the agent as they come; those that are only printed are looked for in the
log, now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.agent.client import AgentSession
from orchestrator.errors import DeadlineError, OutcomeUnknownError, RunFailedError, UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.cache_use import parse_cache_use
from orchestrator.probes.log import find_traceback, last_lines
from orchestrator.probes.throughput import BEFORE_TRAINING, merge, read_tail
from orchestrator.probes.training import how_it_ended, parse_exit, parse_status
from orchestrator.reports.launch import LaunchReport

PRINTED_EVERY_S = 2.0
FOREVER_S = 10 * 365 * 86400.0
LOG_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True)
class WaitCondition:
    kind: str
    """first-step, step, end"""
    step: int | None = None

    @property
    def wanted_step(self) -> int | None:
        """None: its end is waited for."""
        return 1 if self.kind == "first-step" else self.step

    def as_params(self) -> dict[str, object]:
        return {"kind": self.kind} if self.step is None else {"kind": self.kind, "step": self.step}


def parse_condition(text: str) -> WaitCondition:
    """Raises UsageError."""
    if text in ("first-step", "end"):
        return WaitCondition(text)
    kind, colon, number = text.partition(":")
    if kind == "step" and colon and number.isdecimal():
        return WaitCondition("step", int(number))
    raise UsageError(f"--wait takes first-step, step:N or end, not {text!r}", way_out="orch launch --wait step:100")


async def wait_for(
    session: AgentSession,
    target: Target,
    report: LaunchReport,
    condition: WaitCondition,
    timeout_s: float | None,
    on_status: Callable[[Mapping[str, Any]], None] | None,
) -> LaunchReport:
    """timeout_s None: for as long as it takes. Raises DeadlineError, RunFailedError, OutcomeUnknownError."""
    if timeout_s is None:
        timeout_s = FOREVER_S
    until = time.monotonic() + timeout_s
    answer: dict[str, Any] = {}
    while True:
        answer = await _wait_run(session, target, report.run_id, condition, until, on_status, answer)
        facts = await session.request(
            "run_facts", base=target.base, run_id=report.run_id, log_tail_bytes=LOG_TAIL_BYTES
        )
        tail = facts.body.decode("utf-8", "replace")
        if answer["reason"] != "timeout":
            break
        printed = last_step(answer["status"], tail)
        if condition.wanted_step is not None and printed is not None and printed >= condition.wanted_step:
            answer = {**answer, "met": True}
            break
        if time.monotonic() >= until:
            raise DeadlineError(
                f"run {report.run_id} did not get there within {timeout_s:g} s",
                evidence="it goes on; it has told no step yet" if printed is None else f"it goes on, at step {printed}",
                way_out="orch status   to look at it\norch stop     to end it",
            )
    if answer["reason"] == "ended_unknown":
        raise OutcomeUnknownError(
            f"run {report.run_id} is gone, and nobody recorded how it ended",
            evidence=last_lines(tail),
            way_out="orch status",
        )
    run = facts.header["run"]
    if answer["exit"] is not None:
        raise_if_failed(target, report.run_id, answer["exit"], tail, stop_asked=bool(run["stop"]))
    step, wanted = last_step(answer["status"], tail), condition.wanted_step
    reached = answer["met"] or (wanted is not None and step is not None and step >= wanted)
    if condition.step is not None and not reached:
        raise ended_before(target, report.run_id, condition.step, step)
    return replace(
        report,
        waited=condition.kind,
        reached=reached,
        status=answer["status"] if step is None or answer["exit"] else {**(answer["status"] or {}), "step": step},
        ended=answer["exit"],
        result=run["result"],
        cache=parse_cache_use(run.get("cache")),
    )


async def _wait_run(
    session: AgentSession,
    target: Target,
    run_id: str,
    condition: WaitCondition,
    until: float,
    on_status: Callable[[Mapping[str, Any]], None] | None,
    answer: dict[str, Any],
) -> dict[str, Any]:
    """The answer of wait_run. It knows the steps of status.json only: while that tells of none, and a step is waited
    for, it comes back now and then, for a look at what was printed. Before the training begins that is another's.

    answer: the one before; {} at first."""
    while True:
        left_s = max(0.0, until - time.monotonic())
        said = parse_status(answer.get("status"))
        looks = condition.wanted_step is not None and (said is None or said.step is None)
        wait_s = min(left_s, PRINTED_EVERY_S) if looks else left_s
        before = answer.get("status")
        async for reply in session.stream(
            "wait_run", base=target.base, run_id=run_id, condition=condition.as_params(), wait_s=wait_s
        ):
            status = reply.header.get("status")
            if not reply.final and on_status and status and status != before:
                on_status(status)
            answer = reply.header
        said = parse_status(answer["status"])
        may_print = said is None or (said.step is None and said.phase not in BEFORE_TRAINING)
        if answer["reason"] != "timeout" or wait_s == left_s or may_print:
            return answer


def last_step(status: Mapping[str, Any] | None, log_tail: str) -> int | None:
    """As status.json says, else as the training printed it."""
    printed = read_tail(log_tail.encode("utf-8", "surrogateescape"), begins_whole=False)
    said = merge(parse_status(status), printed)
    return said.step if said else None


def ended_before(target: Target, run_id: str, wanted: int, step: int | None) -> DeadlineError:
    """For a run that did not fail and did not get there. step: its last, as far as it told of any."""
    return DeadlineError(
        f"run {run_id} on {target.name} ended before step {wanted}, without an error",
        evidence="it never said at which step it is" if step is None else f"its last step was {step}",
        way_out=f"orch runs show {run_id}\norch launch --wait end   when its end is what matters",
    )


def raise_if_failed(
    target: Target, run_id: str, exit_record: Mapping[str, Any], log_tail: str, *, stop_asked: bool = False
) -> None:
    """Raises RunFailedError with the whole traceback."""
    ended = parse_exit(exit_record)
    if ended is not None and ended.succeeded:
        return
    traceback = find_traceback(log_tail)
    verb = "was stopped" if stop_asked else "failed"
    raise RunFailedError(
        f"run {run_id} on {target.name} {verb}: {how_it_ended(ended) if ended else 'its record cannot be read'}",
        evidence=traceback.text if traceback else last_lines(log_tail),
        way_out=f"orch logs {run_id}",
    )
