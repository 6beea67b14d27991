"""PURE: one run's whole record, in readable groups; as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledger.cache_use import seed_missed
from orchestrator.ledger.fingerprint import Fingerprint, Gpu, identity_hash
from orchestrator.ledger.journal import JournalEntry, detail_text, utc_text
from orchestrator.ledger.records import RunRecord
from orchestrator.ledger.remarks import KeptFinding
from orchestrator.ledger.run_environment import short_environment
from orchestrator.ledger.runs import RunSummary
from orchestrator.probes.compile_cache import CompileCache
from orchestrator.probes.text import one_line
from orchestrator.reports.plain import plain_values
from orchestrator.reports.runs import step_text
from orchestrator.reports.status import result_lines
from orchestrator.reports.table import DASH, bytes_text, duration_text, number_text, render_rows, short
from orchestrator.reports.training import compiled_text, rate_of
from orchestrator.reports.trend import sparkline

SCHEMA = "orch.run/1"
TELLING = ("torch", "triton", "transformers", "flash-attn", "flashinfer-python", "sglang", "vllm", "numpy", "datasets")
"""Packages that are shown with their versions; --json has all."""
SHOWN_DIRTY = 5
PHASES = {"begin": "begun"}

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class RunDetail:
    target: str
    label: str
    run: RunRecord
    summary: RunSummary
    fingerprint: Fingerprint | None
    fingerprint_record: Mapping[str, object] | None
    """As it is in the file."""
    journal: tuple[JournalEntry, ...]
    """What was done to this run, oldest first."""


def render_run(detail: RunDetail) -> str:
    run, summary = detail.run, detail.summary
    head = f"{run.run_id} on {detail.label}: {summary.outcome}"
    if summary.duration_s is not None:
        head += f", {'for' if summary.ended_at is None else 'after'} {duration_text(summary.duration_s)}"
    lines = [one_line(head)]
    for title, rows in _groups(detail):
        if rows:
            lines += ["", title, render_rows([(name, one_line(text, 1000)) for name, text in rows], indent="  ")]
    lines += [f"note: {one_line(note)}" for note in run.state.notes]
    lines += [f"note: {one_line(path)} cannot be read" for path in run.broken]
    return "\n".join(lines)


def run_record(detail: RunDetail) -> dict[str, Any]:
    """For --json: the record as it is kept, and what it was read as. Unknown is null."""
    raw = asdict(detail)
    raw["fingerprint"] = raw.pop("fingerprint_record")
    return {"schema": SCHEMA, **plain_values(raw)}


def _groups(detail: RunDetail) -> Iterator[tuple[str, Rows]]:
    found = detail.fingerprint
    identity = identity_hash(detail.fingerprint_record or {})
    yield "run", [*_run_rows(detail), *([("identity", identity)] if identity else [])]
    yield "result", [("", line) for line in result_lines(detail.run.result)]
    yield "found", [(one.severity, _finding_text(one)) for one in detail.summary.findings]
    yield "code", _code_rows(detail, found)
    yield "software", _software_rows(detail.run, found)
    if found is not None:
        yield "machine", _machine_rows(found)
        yield "compile cache before the start", _cache_rows(found.cache)
        yield "compile cache at the end", _use_rows(detail.run)
        yield "variables", _variable_rows(found)
        yield "not known", list(found.unknown.items())
    yield "journal", [(utc_text(entry.at_s), _journal_text(entry)) for entry in detail.journal]


def _run_rows(detail: RunDetail) -> Rows:
    run, summary = detail.run, detail.summary
    by = f"{', ' if summary.adopted else ' by '}{summary.launched_by}" if summary.launched_by else ""
    rows = [("command", " ".join(run.argv) or DASH), ("started", utc_text(summary.started_at) + by)]
    if summary.ended_at is not None:
        rows.append(("ended", utc_text(summary.ended_at)))
    if summary.mark is not None:
        by = f" by {summary.mark.by}" if summary.mark.by else ""
        note = f": {summary.mark.note}" if summary.mark.note else ""
        rows.append(("marked", f"{summary.mark.verdict}{by} at {utc_text(summary.mark.at_s)}{note}"))
    rows += [("note", f"{note.text} ({note.by or 'somebody'}, {utc_text(note.at_s)})") for note in summary.notes]
    rows += [("because", text) for text in run.state.evidence[1:]]
    if run.settings:
        rows.append(("settings", " ".join(f"{name}={value}" for name, value in run.settings.items())))
    if run.resume_from:
        rows.append(("resumed from", run.resume_from))
    said = [step_text(summary)] if summary.step is not None else []
    if summary.throughput and summary.throughput.rate:
        said.append(rate_of(summary.throughput.rate))
    if said:
        rows.append(("last step", ", ".join(said)))
    long_rate = summary.throughput.long_rate if summary.throughput else None
    if long_rate is not None:
        trend = f" {sparkline(summary.trend, 32)}" if len(summary.trend) > 1 else ""
        rows.append(("speed", rate_of(long_rate) + trend))
    names = [checkpoint.name + ("" if checkpoint.complete else " (incomplete)") for checkpoint in run.checkpoints]
    rows.append(("checkpoints", ", ".join(names) or DASH))
    rows.append(("log", bytes_text(run.log_size_bytes)))
    ended = run.state.exit
    if ended is not None and ended.max_rss_kib is not None:
        spent = [f"{bytes_text(ended.max_rss_kib * 1024)} of memory at most"]
        if ended.user_s is not None and ended.system_s is not None:
            spent.append(f"{duration_text(ended.user_s + ended.system_s)} of CPU")
        rows.append(("used", ", ".join(spent)))
    rows.append(("folder", run.folder))
    return rows


def _finding_text(one: KeptFinding) -> str:
    until = "" if one.gone_at is None else f", until {utc_text(one.gone_at)}"
    evidence = f": {'; '.join(one.evidence)}" if one.evidence else ""
    return f"{one.id}: {one.title}{evidence} (since {utc_text(one.first_at)}{until})"


def _code_rows(detail: RunDetail, found: Fingerprint | None) -> Rows:
    release = found.release if found else None
    if detail.summary.adopted:
        return [("release", f"none: adopted, it was started in {detail.run.cwd or DASH}")]
    if release is None:
        return [("release", short(detail.summary.release))]
    about = f", {release.files} files, {bytes_text(release.bytes)}" if release.files is not None else ""
    rows = [("release", short(release.tree_hash) + about)]
    if release.deployed_by:
        rows.append(("deployed", f"{utc_text(release.deployed_at)} by {release.deployed_by}"))
    if release.git_commit:
        dirty = release.git_dirty_files or ()
        text = f"commit {release.git_commit[:12]}" + (f" on {release.git_branch}" if release.git_branch else "")
        rows.append(("git", text + ("" if dirty else ", nothing changed")))
        if dirty:
            more = f" and {len(dirty) - SHOWN_DIRTY} more" if len(dirty) > SHOWN_DIRTY else ""
            rows.append(("changed", ", ".join(dirty[:SHOWN_DIRTY]) + more))
    return rows


def _software_rows(run: RunRecord, found: Fingerprint | None) -> Rows:
    rows: Rows = []
    if run.environment is not None:
        rows.append(("environment", f"{short_environment(run.environment.id)} ({run.environment.purpose})"))
    if found is not None:
        rows.append(("python", f"{found.python or DASH} ({found.python_path or DASH})"))
        if found.torch is not None:
            built = f"built for CUDA {found.torch.cuda}" if found.torch.cuda else "built without CUDA"
            git = f", git {found.torch.git_version[:12]}" if found.torch.git_version else ""
            rows.append(("torch", f"{found.torch.version or DASH}, {built}{git}"))
        if found.packages is not None:
            told = [f"{name} {found.packages[name]}" for name in TELLING if name in found.packages]
            rows.append((f"{len(found.packages)} packages", ", ".join(told) or "none of those that matter most"))
    runtime = run.runtime or {}
    names = ("torch", "cuda", "cudnn", "triton", "device_name", "pid")
    loaded = [f"{name.replace('_', ' ')} {runtime[name]}" for name in names if runtime.get(name) is not None]
    if loaded:
        rows.append(("loaded", ", ".join(loaded)))
    changed = runtime.get("compiler_settings")
    for module, settings in changed.items() if isinstance(changed, Mapping) else ():
        if isinstance(settings, Mapping) and settings:
            rows.append((str(module), ", ".join(f"{name}={value}" for name, value in settings.items())))
    return rows


def _machine_rows(found: Fingerprint) -> Rows:
    rows = [("GPUs", _gpus_text(found.gpus)), ("driver", found.driver or DASH)]
    rows.append(("kernel", f"{found.kernel or DASH}, {found.libc or DASH}"))
    rows.append(("host name", found.hostname or DASH))
    limits = found.limits
    if limits is not None:
        cores = f"{limits.cpu_cores:g} of " if limits.cpu_cores is not None else ""
        rows.append(("CPUs", f"{cores}{len(limits.cpus)}"))
        rows.append(("memory limit", bytes_text(limits.memory_bytes)))
        rows.append(("/dev/shm", bytes_text(limits.shm_bytes)))
        rows.append(("disk", f"{bytes_text(limits.disk_free_bytes)} free"))
    return rows


def _gpus_text(gpus: tuple[Gpu, ...] | None) -> str:
    """`8: NVIDIA H200, 143771 MiB`; of several kinds, each."""
    if gpus is None:
        return DASH
    kinds: dict[str, int] = {}
    for gpu in gpus:
        memory = number_text(gpu.memory_total_mib)
        kind = f"{gpu.name or DASH}, {memory} MiB"
        kinds[kind] = kinds.get(kind, 0) + 1
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"


def _use_rows(run: RunRecord) -> Rows:
    use, compiled = run.cache, run.status.compiled if run.status is not None else None
    if use is None:
        return []
    rows = _cache_rows(use.after)
    if use.after is not None and use.after.new_files is not None:
        graphs = "" if use.after.new_graphs is None else f", {use.after.new_graphs} of the graphs"
        rows.append(("new since the start", f"{use.after.new_files} files{graphs}"))
    if compiled:
        rows.append(("compiled", compiled_text(compiled)))
    if use.seeded_from is not None:
        rows.append(("seeded from", use.seeded_from))
        missed = seed_missed(use, compiled, None)
        rows += [("", missed)] if missed else []
    return rows


def _cache_rows(cache: CompileCache | None) -> Rows:
    rows: Rows = []
    for folder in cache.folders if cache else ():
        graphs = f", {folder.entries} graphs" if folder.entries is not None else ""
        least = "" if folder.complete else "at least "
        held = f"{least}{bytes_text(folder.bytes)}, {folder.files} files{graphs}" if folder.exists else "not there"
        rows.append((folder.name, f"{folder.path}: {held}"))
    return rows


def _variable_rows(found: Fingerprint) -> Rows:
    rows = sorted(found.variables.items())
    if found.other_variables:
        rows.append(("names only", " ".join(found.other_variables)))
    return rows


def _journal_text(entry: JournalEntry) -> str:
    text = f"{entry.op} {PHASES.get(entry.phase, entry.phase)} by {entry.by}"
    about = detail_text({name: value for name, value in entry.detail.items() if name != "run_id"})
    return f"{text}: {about}" if about else text
