"""PURE: one target's status as facts, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.diagnosis.finding import INFO, Finding
from orchestrator.ledger.journal import JournalEntry, unfinished_text
from orchestrator.ledger.records import RunRecord
from orchestrator.ledger.run_environment import RunEnvironment, short_environment
from orchestrator.ledger.runs import run_outcome
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.rate import Rate
from orchestrator.probes.text import one_line
from orchestrator.probes.throughput import Throughput
from orchestrator.probes.training import CompileProgress, RunPhase
from orchestrator.reports.fitting import clip
from orchestrator.reports.plain import plain_values
from orchestrator.reports.table import DASH, bytes_text, duration_text, number_text, render_rows, short
from orchestrator.reports.training import STALE_S, compiled_text, progress_parts, rate_of

SCHEMA = "orch.status/2"
SHOWN_LINES = 5
SHOWN_COLUMNS = 400
LONGEST_RESULT = 60


@dataclass(frozen=True)
class LinkFact:
    """Of `orch status --watch`; a single status has just been told everything."""

    connected: bool = True
    since_s: float = 0.0
    """Seconds for which it has been so."""
    why: str | None = None
    """Why it is not connected, in a sentence."""
    facts_age_s: float = 0.0
    """Everything else in the report was so this long ago."""


@dataclass(frozen=True)
class CacheFact:
    """The compile cache, its three folders together."""

    bytes: int | None
    entries: int | None
    """Compiled graphs."""
    age_s: float | None = None
    """Counting takes a while, so it is done rarely: this long ago."""
    complete: bool = True
    """False: the counting was stopped; there is more."""
    new_files: int | None = None
    """Made or written to since the run that is shown was launched, and of a run that has ended until then."""
    new_graphs: int | None = None


@dataclass(frozen=True)
class Failure:
    """The newest run that failed, whether or not another one was started since."""

    run_id: str
    how: str
    """`exit code 1`, `killed by SIGKILL`."""
    ended_at: float | None
    exception: str | None
    """The line that names what was raised."""
    traceback: str | None
    """Whole."""
    kind: str | None = None
    """Of what the others follow from, as far as its log tells: docs/failures.md."""
    cause: str | None = None
    """The line that says so."""
    remedy: str | None = None


@dataclass(frozen=True)
class BesideGood:
    """The speed of a run that goes on beside that of the last good run of its shape."""

    run_id: str
    """The good run."""
    why: str
    """Why it is one: `ended well`, `marked good by ...`."""
    good_per_s: float
    per_s: float | None
    """Of the run that goes on, measured the same way. Null: it has not trained for long enough, since windows of 20 s
    were seen to vary 1.8 times on a healthy run."""
    counted: str
    """What is counted: `tok`, `samples` or `it`."""
    per_device: bool
    percent: float | None
    """`per_s` of `good_per_s`."""


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """One target as it stood when it was last asked. Times are Unix times by the target's own clock."""

    target: str
    label: str
    now_s: float | None = None
    container: ContainerFact | None = None
    run: RunRecord | None = None
    compiling: CompileProgress | None = None
    throughput: Throughput | None = None
    """Step, loss, rate and time left, also of a training that only prints them."""
    release: str | None = None
    """Absolute path of the live release."""
    disk_free_bytes: int | None = None
    cache: CacheFact | None = None
    cache_warning: str | None = None
    """The run began with a seeded cache and did not find all of it again."""
    gpus: tuple[GpuFact, ...] | None = None
    gpus_age_s: float | None = None
    """The driver said so this long before `now_s`."""
    gpu_error: str | None = None
    """Why there is no newer word of the GPUs."""
    gpu_source: str | None = None
    """Who was asked: `nvml`, or `nvidia-smi` where there is no NVML library."""
    rate_warning: str | None = None
    """The rate is outside of what the inventory expects of the payload."""
    beside_good: BesideGood | None = None
    """Null: no run goes on, there is no good run to compare it with, or its rate was not to be had in time."""
    gpu_warnings: tuple[str, ...] = ()
    """What is wrong with one of them, or around them, in sentences."""
    gpu_kernel_log: tuple[str, ...] | None = None
    """What the host's kernel has reported of GPUs since it booted (Xid), in sentences. Null: not asked, because nothing
    is wrong, or not to be read."""
    gpu_roles: tuple[str | None, ...] = ()
    """Beside each of `gpus`: what the run that lives says it does there (`target`, `drafter`)."""
    failure: Failure | None = None
    unfinished: JournalEntry | None = None
    """The last thing that somebody began to change and that nobody finished."""
    findings: tuple[Finding, ...] | None = None
    """What is wrong with the run that goes on, beside the last good one: those of `orch doctor` that a status can
    judge, the cause first. Null: not judged, because no run goes on, or what it takes was not to be had in time."""
    last_lines: tuple[str, ...] = ()
    link: LinkFact = LinkFact()

    @property
    def traceback(self) -> str | None:
        """Of the run that is shown, when that failed."""
        return self.failure.traceback if self.failure and self.run and self.failure.run_id == self.run.run_id else None

    @property
    def why(self) -> list[str]:
        """What the failed run that is shown died of: kind and line, and the way out. Empty: it did not fail, or its
        log does not tell."""
        failure = self.failure
        if failure is None or self.run is None or failure.run_id != self.run.run_id or failure.kind is None:
            return []
        lines = [f"cause: {failure.kind}: {one_line(failure.cause or '')}"]
        return [*lines, f"way out: {failure.remedy}"] if failure.remedy and failure.kind != "exception" else lines


def render_status(report: StatusReport) -> str:
    rows = [("run", _run_text(report)), *_training_rows(report)]
    rows += [("" if number else "finding", words) for number, words in enumerate(finding_words(report))]
    rows += [("session", session_text(report.run)), ("release", release_text(report))]
    if report.run is not None and report.run.environment is not None:
        rows.append(("environment", environment_text(report.run.environment)))
    rows.append(("GPUs", _gpu_text(report)))
    rows += [("" if number else "GPU warning", warning) for number, warning in enumerate(gpu_trouble(report))]
    rows += [("disk", f"{bytes_text(report.disk_free_bytes)} free")]
    if report.cache is not None:
        rows.append(("cache", cache_text(report.cache)))
    if report.cache_warning is not None:
        rows.append(("", report.cache_warning))
    if report.container is not None:
        rows.insert(0, ("container", container_text(report.container)))
    if report.failure is not None and (report.run is None or report.failure.run_id != report.run.run_id):
        rows.append(("last failure", failure_text(report.failure, report.now_s)))
    if report.unfinished is not None:
        rows.append(("unfinished", unfinished_text(report.unfinished)))
    lines = [report.label, render_rows(rows, indent="  ")]
    if report.run:
        lines += [f"  note: {note}" for note in report.run.state.notes]
    if report.why:
        lines += ["", *report.why]
    if report.traceback:
        lines += ["", report.traceback]
    elif report.last_lines:
        lines += ["", *(f"  | {clip(line, SHOWN_COLUMNS)}" for line in report.last_lines[-SHOWN_LINES:])]
    return "\n".join(lines)


def environment_text(environment: RunEnvironment) -> str:
    """`0123456789ab (train)`"""
    return f"{short_environment(environment.id)} ({environment.purpose})"


def finding_words(report: StatusReport) -> tuple[str, ...]:
    """A line for each finding that asks for something."""
    return tuple(one.line for one in report.findings or () if one.severity != INFO)


def gpu_trouble(report: StatusReport) -> tuple[str, ...]:
    return (*report.gpu_warnings, *(report.gpu_kernel_log or ()))


def container_text(container: ContainerFact) -> str:
    """`up 3 h 12 min, memory 4.1 GB of 68.7 GB, 16 CPUs`. A limit that is not known is left out."""
    used = bytes_text(container.memory_used_bytes)
    if container.memory_limit_bytes is not None:
        used += f" of {bytes_text(container.memory_limit_bytes)}"
    parts = [f"up {duration_text(container.uptime_s)}", f"memory {used}"]
    if container.cpu_limit_cores is not None:
        parts.append(f"{container.cpu_limit_cores:g} CPUs")
    return ", ".join(parts)


def cache_text(cache: CacheFact) -> str:
    """`353.1 MB, 4120 compiled graphs, 0 files new since the launch`"""
    if cache.bytes is None:
        return "empty"
    least = "" if cache.complete else "at least "
    graphs = "" if cache.entries is None else f", {cache.entries} compiled graph{'' if cache.entries == 1 else 's'}"
    new = "" if cache.new_files is None else f", {cache.new_files} files new since the launch"
    return f"{least}{bytes_text(cache.bytes)}{graphs}{new}"


def failure_text(failure: Failure, now_s: float | None) -> str:
    """One line."""
    what = failure.cause or failure.exception or failure.how
    kind = f"{failure.kind}: " if failure.kind and failure.kind != "exception" else ""
    ago = _since(now_s, failure.ended_at)
    when = "" if ago == DASH else f", {ago} ago"
    return one_line(f"{failure.run_id}{when}: {kind}{what}")


def _run_text(report: StatusReport) -> str:
    return " ".join([report.run.run_id, ", ".join(how_it_goes(report))]) if report.run else "none yet"


def how_it_goes(report: StatusReport) -> list[str]:
    """Of the run that is shown; empty without one."""
    run = report.run
    if run is None:
        return []
    state = run.state
    if state.phase is RunPhase.RUNNING:
        pid = DASH if state.pid is None else state.pid
        return [f"running for {_since(report.now_s, run.created_at)} (pid {pid})"]
    if state.phase is RunPhase.ENDED and state.exit:
        took = _since(state.exit.ended_at, state.exit.started_at)
        ago = _since(report.now_s, state.exit.ended_at)
        # A clock that was set back meanwhile makes either of them negative: then it is not known.
        known = [*([f"after {took}"] if took != DASH else []), *([f"{ago} ago"] if ago != DASH else [])]
        return [run_outcome(run), *known]
    return [f"{state.phase.value}: {'; '.join(state.evidence)}"]


def _since(later: float | None, earlier: float | None) -> str:
    return duration_text(later - earlier) if later is not None and earlier is not None else DASH


def progress_of(report: StatusReport) -> list[str]:
    """How the training of the run that is shown goes, or went."""
    run = report.run
    if run is None:
        return []
    over = run.state.phase not in (RunPhase.RUNNING, RunPhase.STARTING)
    beside = beside_text(report.beside_good)
    parts = progress_parts(run.status, report.throughput, report.compiling, over=over, beside=beside)
    if not over and run.status and run.status.updated_at and report.now_s:
        age_s = report.now_s - run.status.updated_at
        parts += [f"said {duration_text(age_s)} ago"] if age_s > STALE_S else []
    return parts


def beside_text(beside: BesideGood | None) -> str:
    """`60 % of the last good run's 21.5`, in the unit of the rate that it stands behind; "" while it is not known."""
    if beside is None or beside.percent is None:
        return ""
    good = rate_of(Rate(beside.good_per_s, beside.counted, beside.per_device))
    here = rate_of(Rate(beside.per_s or 0.0, beside.counted, beside.per_device))
    number, _, unit = good.partition(" ")
    return f"{beside.percent:.0f} % of the last good run's {number if here.endswith(unit) else good}"


def _training_rows(report: StatusReport) -> list[tuple[str, str]]:
    run = report.run
    if run is None:
        return []
    parts = progress_of(report)
    rows = [("training", ", ".join(parts))] if parts else []
    if run.status and (compiled := compiled_text(run.status.compiled or {})):
        rows.append(("compiled", compiled))
    rows += [("warning", warning) for warning in (run.status.warnings if run.status else ())]
    for number, line in enumerate(result_lines(run.result, brief=True)):
        rows.append(("" if number else "result", line))
    if report.rate_warning:
        rows.append(("rate", report.rate_warning))
    if run.last_checkpoint:
        rows.append(("checkpoint", run.last_checkpoint.name))
    return rows


def session_text(run: RunRecord | None) -> str:
    if run is None or run.session is None:
        return DASH
    session = run.session
    if session.present is None:
        return f"{session.name}: not known ({session.note or DASH})"
    return f"{session.name}: orch attach" if session.present else f"{session.name}: closed"


def release_text(report: StatusReport) -> str:
    if report.release is None:
        return "nothing deployed"
    current = report.release.rsplit("/", 1)[-1]
    text = short(current)
    of_run = report.run.release.rsplit("/", 1)[-1] if report.run and report.run.release else None
    if of_run and of_run != current:
        text += f" (the run's: {short(of_run)})"
    if report.run and of_run is None and report.run.cwd:
        text += f" (the run's: none, it was started in {report.run.cwd})"
    return text


def _gpu_text(report: StatusReport) -> str:
    if report.gpus is None:
        return report.gpu_error or DASH
    used = [number_text(gpu.memory_used_mib) for gpu in report.gpus]
    return f"{len(report.gpus)}, MiB used: {' '.join(used)}" if used else "none"


def result_lines(result: Mapping[str, object] | None, *, brief: bool = False) -> list[str]:
    """result.json, a line for each value; what comes from afar is made one line of plain text. brief: without long
    texts, which explain and are the same each time; `orch runs show` has them."""
    named = [
        (key.replace("_", " "), value)
        for key, value in (result or {}).items()
        if key != "schema" and not (brief and isinstance(value, str) and len(value) > LONGEST_RESULT)
    ]
    return [one_line(f"{name}: {_value(value)}") for name, value in named]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def status_record(report: StatusReport) -> dict[str, Any]:
    """For --json. Unknown is null."""
    return {"schema": SCHEMA, **plain_values(asdict(report))}
