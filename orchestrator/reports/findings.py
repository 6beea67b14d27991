"""PURE: what is wrong with a run that goes on, of the facts of a status and of what was asked beside them.

Rule: the same signatures as `orch doctor`; those whose facts a status does not ask are silent here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from orchestrator.diagnosis.case import Beside, Case, Machine, RunFacts
from orchestrator.diagnosis.diagnose import cheap_findings
from orchestrator.diagnosis.finding import Finding
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord
from orchestrator.ledger.runs import rate_of
from orchestrator.probes.pace import LEAST_S, pace_of_log
from orchestrator.probes.rate import TOKENS, Rate
from orchestrator.probes.training import RunPhase
from orchestrator.reports.status import BesideGood, StatusReport

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.log_reading import LogReading

READ_BYTES = 32 * 1024
"""Of the log's end, for rates that are only printed."""
TELLING = (
    *(b"fx to symbolically trace", b"not installed as a submodule", b"recompile_limit", b"cache_size_limit"),
    *(b"without torch.compile", b"no space left", b"quota exceeded", b"out of memory", b"bus error", b"xid"),
)
"""Words without which the log of a run that goes on tells of no failure that a finding is made of."""


def findings_of(
    report: StatusReport, target: Target, beside: Beside | None, log_tail: bytes, memory_swing: float | None = None
) -> tuple[Finding, ...]:
    """Empty for a run that does not go on: what it died of is the report's `failure`. memory_swing: of its GPUs, seen
    again and again."""
    run = report.run
    if run is None or run.state.phase not in (RunPhase.RUNNING, RunPhase.STARTING):
        return ()
    if beside is not None and beside.run_id != run.run_id:
        beside = None
    case = _case(report, target, run, beside, log_tail)
    return cheap_findings(replace(case, memory_swing_seen=memory_swing))


def beside_good(report: StatusReport, target: Target, beside: Beside | None, log_tail: bytes) -> BesideGood | None:
    """Its rate beside the last good run's, both over minutes."""
    run = report.run
    if run is None or beside is None or beside.run_id != run.run_id or beside.good is None:
        return None
    case = _case(report, target, run, beside, log_tail)
    good, here = beside.good, case.run
    rate, told = None, Rate(good.tokens_per_s, TOKENS) if good.tokens_per_s is not None else None
    if told is not None and here is not None and here.tokens_per_s is not None:
        rate = Rate(here.tokens_per_s, TOKENS)
    elif told is None and good.summary is not None and (told := rate_of(good.summary)) is not None and here is not None:
        long = report.throughput.long_rate if report.throughput is not None else None
        alike = long is not None and (long.counted, long.per_device) == (told.counted, told.per_device)
        rate = long if alike and (here.trained_s or 0.0) >= LEAST_S else None
    if told is None or told.per_s <= 0:
        return None
    percent = None if rate is None else 100 * rate.per_s / told.per_s
    return BesideGood(
        good.run_id, beside.good_why, told.per_s, rate.per_s if rate else None, told.counted, told.per_device, percent
    )


def _case(report: StatusReport, target: Target, run: RunRecord, beside: Beside | None, log_tail: bytes) -> Case:
    log = _read(log_tail) if any(word in log_tail.lower() for word in TELLING) else None
    pace = beside.pace if beside is not None else None
    if pace is None and beside is not None and (run.status is None or run.status.tokens_per_s is None):
        reading = log if log is not None else _read(log_tail[-READ_BYTES:])
        pace = pace_of_log(reading, run.created_at, run.log_written_at)
    facts = RunFacts(
        run_id=run.run_id,
        record=run,
        runtime=run.runtime,
        cache_before=beside.cache_before if beside is not None else None,
        pace=pace,
        throughput=report.throughput,
        log=log,
    )
    return Case(
        target=target.name,
        label=target.label,
        now_s=report.now_s,
        payload=target.payload,
        run=facts,
        good=beside.good if beside is not None else None,
        good_why=beside.good_why if beside is not None else "",
        comparison=beside.comparison if beside is not None else None,
        edited_at_start=beside.edited if beside is not None else (),
        variables=beside.variables if beside is not None else None,
        gpus=report.gpus,
        gpu_error=report.gpu_error,
        gpu_warnings=report.gpu_warnings,
        kernel_log=report.gpu_kernel_log,
        container=report.container,
        machine=Machine(disk_free_bytes=report.disk_free_bytes),
    )


@lru_cache(maxsize=2)
def _read(tail: bytes) -> LogReading:
    """Remembered: a watch asks again and again, of the same bytes."""
    from orchestrator.probes.log_reading import read_log  # only a log that tells something is worth its import

    return read_log(tail.decode("utf-8", "surrogateescape"))
