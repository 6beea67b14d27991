"""A run's summary as one line of JSON and back, for the index on the controller.

Rule: pure; a line that another orch wrote is read as far as it is the same, and one that cannot be read is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from orchestrator.ledger.remarks import parse_findings, parse_notes
from orchestrator.ledger.runs import CacheSize, Mark, RunSummary, Shape
from orchestrator.probes.rate import Rate
from orchestrator.probes.throughput import Throughput
from orchestrator.probes.training import RunPhase
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str, as_strs

READER = 3
"""Another number once a summary says more, or something else: what was kept before is then asked for anew."""


def summary_line(run: RunSummary) -> str:
    throughput = run.throughput
    if throughput is not None:
        rate, long_rate = (told and replace(told, place=None) for told in (throughput.rate, throughput.long_rate))
        throughput = replace(throughput, rate=rate, long_rate=long_rate)
    raw = asdict(replace(run, throughput=throughput))
    raw["phase"] = run.phase.value
    return json.dumps(raw, separators=(",", ":"), sort_keys=True)


def parse_summary(line: str) -> RunSummary | None:
    try:
        raw = as_mapping(json.loads(line))
        phase = RunPhase(raw.get("phase"))
    except (ValueError, RecursionError):
        return None
    run_id = as_str(raw.get("run_id"))
    if run_id is None:
        return None
    trend, shape, compiled = raw.get("trend"), as_mapping(raw.get("shape")), as_mapping(raw.get("compiled"))
    counts = {name: count for name, value in compiled.items() if (count := as_int(value)) is not None}
    mark = as_mapping(raw.get("mark"))
    return RunSummary(
        run_id=run_id,
        phase=phase,
        outcome=as_str(raw.get("outcome")) or phase.value,
        failed=as_bool(raw.get("failed")) is True,
        throughput=_throughput(as_mapping(raw.get("throughput"))),
        checkpoints=as_int(raw.get("checkpoints")) or 0,
        command=as_strs(raw.get("command")),
        mark=_mark(mark) if mark else None,
        shape=Shape(as_str(shape.get("payload")), as_int(shape.get("targets")), as_int(shape.get("drafters"))),
        cache_before=_cache(as_mapping(raw.get("cache_before"))),
        cache_after=_cache(as_mapping(raw.get("cache_after"))),
        compiled=counts or None,
        trend=tuple(at for value in trend if (at := as_float(value)) is not None) if isinstance(trend, list) else (),
        findings=parse_findings(raw),
        looked=as_bool(raw.get("looked")) is True,
        notes=parse_notes(raw),
        adopted=as_bool(raw.get("adopted")) is True,
        broken=as_strs(raw.get("broken")),
        started_at=as_float(raw.get("started_at")),
        ended_at=as_float(raw.get("ended_at")),
        duration_s=as_float(raw.get("duration_s")),
        created_at=as_float(raw.get("created_at")),
        acceptance=as_float(raw.get("acceptance")),
        step=as_int(raw.get("step")),
        total_steps=as_int(raw.get("total_steps")),
        git_dirty=as_int(raw.get("git_dirty")),
        release=as_str(raw.get("release")),
        git_commit=as_str(raw.get("git_commit")),
        git_branch=as_str(raw.get("git_branch")),
        launched_by=as_str(raw.get("launched_by")),
    )


def _throughput(raw: Mapping[str, object]) -> Throughput | None:
    source = as_str(raw.get("source"))
    if source is None:
        return None
    return Throughput(
        source,
        as_int(raw.get("step")),
        as_int(raw.get("total_steps")),
        as_float(raw.get("loss")),
        _rate(as_mapping(raw.get("rate"))),
        _rate(as_mapping(raw.get("long_rate"))),
        as_float(raw.get("eta_s")),
        as_float(raw.get("age_s")),
    )


def _rate(raw: Mapping[str, object]) -> Rate | None:
    per_s, counted = as_float(raw.get("per_s")), as_str(raw.get("counted"))
    if per_s is None or counted is None:
        return None
    return Rate(per_s, counted, as_bool(raw.get("per_device")) is True, as_str(raw.get("printed")) or "")


def _cache(raw: Mapping[str, object]) -> CacheSize | None:
    if not raw:
        return None
    size, files, entries = (as_int(raw.get(name)) for name in ("bytes", "files", "entries"))
    return CacheSize(size, files, entries, as_bool(raw.get("complete")) is True)


def _mark(raw: Mapping[str, object]) -> Mark:
    return Mark(
        as_str(raw.get("verdict")) or "", as_str(raw.get("note")), as_str(raw.get("by")), as_float(raw.get("at_s"))
    )
