"""What a target answered -> the report of `orch status`, once or again and again.

Rule: pure; what was not said is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from orchestrator.inventory.model import Target
from orchestrator.ledger.cache_use import seed_missed
from orchestrator.ledger.journal import parse_journal_entry
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.probes.compile_cache import parse_cache_stats
from orchestrator.probes.container import parse_container
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.gpu_roles import gpu_roles
from orchestrator.probes.nvml import failure_text, parse_nodes, parse_nvml, warnings
from orchestrator.probes.rate import TOKENS
from orchestrator.probes.text import one_line, plain_text
from orchestrator.probes.throughput import Throughput, merge, read_tail
from orchestrator.probes.training import RunPhase, compile_progress, how_it_ended, parse_exit
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str, as_strs
from orchestrator.reports.status import CacheFact, Failure, LinkFact, StatusReport
from orchestrator.reports.table import rate_text

if TYPE_CHECKING:
    from orchestrator.probes.failures.found import FailureFound
    from orchestrator.probes.traceback_facts import Traceback

LAST_LINES = 20
CAUSE_CHARS = 400
LAST_LINES_BYTES = 16 * 1024
RATES_BYTES = 64 * 1024
NVML, SMI = "nvml", "nvidia-smi"


@dataclass(frozen=True)
class GpuWord:
    """The last thing that the driver said."""

    gpus: tuple[GpuFact, ...] | None
    error: str | None
    age_s: float | None
    source: str | None = None
    warnings: tuple[str, ...] = ()


def status_report(
    target: Target,
    facts: Mapping[str, Any],
    log_tail: bytes,
    gpu: GpuWord,
    *,
    throughput: Throughput | None = None,
) -> StatusReport:
    """facts, log_tail: the answer of run_facts, or what the agent's watch has told so far; its `cache` is the answer
    of cache_stats. throughput: measured by
    whoever sees the log grow; otherwise what its end says."""
    run = parse_run_record(facts)
    now_s = as_float(facts.get("now"))
    if throughput is None and run is not None:
        throughput = _throughput(run, log_tail[-RATES_BYTES:])
    return StatusReport(
        target=target.name,
        label=target.label,
        now_s=now_s,
        container=parse_container(facts.get("container")),
        run=run,
        compiling=compile_progress(run.status, now_s) if run and run.state.phase is RunPhase.RUNNING else None,
        throughput=throughput,
        release=as_str(facts.get("release")),
        disk_free_bytes=as_int(facts.get("disk_free_bytes")),
        cache=_cache(facts.get("cache"), run, now_s),
        cache_warning=_cache_warning(facts.get("cache"), run),
        gpus=gpu.gpus,
        gpus_age_s=gpu.age_s,
        gpu_error=gpu.error,
        gpu_source=gpu.source,
        rate_warning=_rate_warning(target, run, throughput),
        gpu_warnings=gpu.warnings,
        gpu_roles=gpu_roles(gpu.gpus or (), run.runtime if run and run.state.phase is RunPhase.RUNNING else None),
        failure=_failure(facts, run, log_tail),
        unfinished=parse_journal_entry(facts.get("unfinished")),
        last_lines=_last_lines(log_tail[-LAST_LINES_BYTES:]),
        link=LinkFact(),
    )


def _throughput(run: RunRecord, tail: bytes) -> Throughput | None:
    """A log is read only where status.json leaves anything open: importing what reads it takes longer than the rest."""
    said = run.status
    if said is not None and None not in (said.step, said.total_steps, said.loss, said.tokens_per_s, said.eta_s):
        return merge(said, None)
    return merge(said, read_tail(tail, begins_whole=run.log_size_bytes == len(tail)))


def gpu_answer(answer: Mapping[str, Any], age_s: float | None = None) -> GpuWord:
    """answer: that of the agent's op gpus, or what its watch tells of the GPUs, which then is age_s old."""
    nodes = parse_nodes(as_mapping(answer.get("nodes")))
    if answer.get("smi") is not None:
        word = _smi_answer(as_mapping(answer["smi"]), age_s)
        return replace(word, warnings=warnings(word.gpus, nodes))
    nvml = as_mapping(answer.get("nvml"))
    told = nvml.get("told")
    gpus = None if told is None else parse_nvml(as_mapping(told))
    failed = as_mapping(nvml.get("failed"))
    error = failure_text(failed, nodes) if failed else as_str(nvml.get("error"))
    if age_s is None:
        age_s = as_float(nvml.get("age_s"))
    return GpuWord(gpus, None if error is None else one_line(error), age_s, NVML, warnings(gpus, nodes))


def _smi_answer(smi: Mapping[str, Any], age_s: float | None) -> GpuWord:
    """smi: the result of nvidia-smi in run_batch, or what the watch's follower of it tells."""
    if smi.get("timed_out"):
        return GpuWord(None, f"nvidia-smi did not answer within {smi['wall_s']:.0f} s", None, SMI)
    if smi.get("exit_code") == 127:
        return GpuWord(None, "nvidia-smi is not installed", None, SMI)
    # NVML answers nearly everywhere; these take longer to import than all else that a status says of GPUs.
    from orchestrator.probes.gpu_csv import parse_gpu_csv
    from orchestrator.probes.gpu_trouble import with_way_out

    if "exit_code" not in smi:
        rows, said = "\n".join(as_strs(smi.get("rows"))), as_str(smi.get("error"))
        gpus = parse_gpu_csv(rows).gpus if rows else None
        return GpuWord(gpus, None if said is None else with_way_out(said), age_s, SMI)
    if smi["exit_code"] == 0:
        answer = parse_gpu_csv(smi["stdout"])
        error = with_way_out("\n".join(answer.rejected)) if answer.rejected else None
        return GpuWord(answer.gpus, error, 0.0, SMI)
    said = smi["stderr"] or smi["stdout"] or f"nvidia-smi: exit code {smi['exit_code']}"
    return GpuWord(None, with_way_out(said), None, SMI)


def _cache(stats: object, run: RunRecord | None, now_s: float | None) -> CacheFact | None:
    cache = parse_cache_stats(stats)
    if cache is None:
        return None
    of_run = run.cache.after if run is not None and run.cache is not None and run.cache.after is not None else cache
    age_s = None if now_s is None or cache.counted_at is None else max(0.0, now_s - cache.counted_at)
    return CacheFact(
        bytes=cache.bytes,
        entries=cache.entries,
        age_s=age_s,
        complete=cache.complete,
        new_files=of_run.new_files,
        new_graphs=of_run.new_graphs,
    )


def _cache_warning(stats: object, run: RunRecord | None) -> str | None:
    if run is None:
        return None
    return seed_missed(run.cache, run.status.compiled if run.status is not None else None, parse_cache_stats(stats))


def _rate_warning(target: Target, run: RunRecord | None, said: Throughput | None) -> str | None:
    """Only of a rate over a while: the first steps compile."""
    rate = None if said is None else said.long_rate
    if run is None or run.state.phase is not RunPhase.RUNNING or target.payload is None or rate is None:
        return None
    low, high = target.payload.expected.tokens_per_s_min, target.payload.expected.tokens_per_s_max
    if rate.counted != TOKENS or rate.per_device:
        return None
    if low is not None and rate.per_s < low:
        return f"{rate_text(rate.per_s)} is less than the {rate_text(low)} that are expected"
    if high is not None and rate.per_s > high:
        return f"{rate_text(rate.per_s)} is more than the {rate_text(high)} that are expected"
    return None


def _failure(facts: Mapping[str, Any], run: RunRecord | None, log_tail: bytes) -> Failure | None:
    earlier = as_mapping(facts.get("failure"))
    run_id = as_str(earlier.get("run_id"))
    if run is not None and run.failed and run_id != run.run_id:  # the agent has not searched its log yet
        return _told(run.run_id, as_mapping(as_mapping(facts.get("run")).get("exit")), log_tail)
    if run_id is None or (run is not None and run_id == run.run_id and not run.failed):
        return None
    early, tail = (
        (as_str(earlier.get(part)) or "").encode("utf-8", "surrogateescape") for part in ("log_signs", "log_tail")
    )
    return _told(run_id, as_mapping(earlier.get("exit")), tail, early)


def _told(run_id: str, exit_record: Mapping[str, object], tail: bytes, early: bytes = b"") -> Failure:
    """early: what the log says of failures before its tail: there may be the cause, and a first traceback."""
    ended = parse_exit(exit_record)
    how = "nobody recorded how it ended" if ended is None else ended.start_error or how_it_ended(ended)
    found = _traceback(tail) or (_traceback(early) if early else None)
    root = _root(early, tail)
    return Failure(
        run_id=run_id,
        how=how,
        ended_at=ended.ended_at if ended else None,
        exception=found.exception or None if found else None,
        traceback=found.text if found else None,
        kind=root.kind if root else None,
        cause=one_line(root.line, CAUSE_CHARS) if root else None,
        remedy=root.remedy if root else None,
    )


@lru_cache(maxsize=4)
def _traceback(tail: bytes) -> Traceback | None:
    """Remembered: a watch asks once a second, of the same bytes."""
    from orchestrator.probes.log import find_traceback  # only a run that failed is worth its import

    return find_traceback(tail.decode("utf-8", "replace"))


@lru_cache(maxsize=4)
def _root(early: bytes, tail: bytes) -> FailureFound | None:
    from orchestrator.probes.log_reading import read_log  # only a run that failed is worth its import

    text = tail if not early else early + b"\n[orch] left out\n" + tail
    return read_log(text.decode("utf-8", "surrogateescape")).root


@lru_cache(maxsize=1)
def _last_lines(tail: bytes) -> tuple[str, ...]:
    lines = plain_text(tail.decode("utf-8", "replace")).rstrip("\n").splitlines()
    return tuple(lines[-LAST_LINES:])
