"""What a target answered -> the report of `orch status`.

Rule: pure; what was not said is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.inventory.model import Target
from orchestrator.ledger.records import parse_run_record
from orchestrator.probes.gpu import parse_gpu_csv
from orchestrator.probes.log import find_traceback
from orchestrator.probes.text import one_line, plain_text
from orchestrator.probes.training import RunPhase
from orchestrator.probes.values import as_float, as_int, as_str
from orchestrator.reports.status import StatusReport

LAST_LINES = 5


def status_report(target: Target, facts: Mapping[str, Any], log_tail: bytes, smi: Mapping[str, Any]) -> StatusReport:
    """facts, log_tail: the answer of run_facts; smi: the result of nvidia-smi in run_batch."""
    tail = log_tail.decode("utf-8", "replace")
    run = parse_run_record(facts)
    failed = run is not None and (
        run.state.phase is RunPhase.ENDED_UNKNOWN or (run.state.exit is not None and not run.state.exit.succeeded)
    )
    traceback = find_traceback(tail) if failed else None
    return StatusReport(
        target=target.name,
        label=target.label,
        now_s=as_float(facts.get("now")),
        run=run,
        release=as_str(facts.get("release")),
        disk_free_bytes=as_int(facts.get("disk_free_bytes")),
        gpus=parse_gpu_csv(smi["stdout"]).gpus if smi["exit_code"] == 0 else None,
        gpu_error=_gpu_error(smi),
        traceback=traceback.text if traceback else None,
        last_lines=tuple(plain_text(tail).rstrip("\n").splitlines()[-LAST_LINES:]),
    )


def _gpu_error(smi: Mapping[str, Any]) -> str | None:
    if smi["exit_code"] == 0:
        return None
    if smi["timed_out"]:
        return f"nvidia-smi did not answer within {smi['wall_s']:.0f} s"
    if smi["exit_code"] == 127:
        return "nvidia-smi is not installed"
    return one_line(smi["stderr"] or smi["stdout"] or f"nvidia-smi: exit code {smi['exit_code']}")
