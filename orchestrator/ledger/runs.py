"""Many runs as their records tell of them, a few facts each.

Rule: pure; built only from the agent's runs_overview. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.probes.printed_words import TOKENS
from orchestrator.probes.text import one_line
from orchestrator.probes.throughput import Throughput, merge, read_tail
from orchestrator.probes.training import RunPhase, how_it_ended
from orchestrator.probes.values import as_float, as_int, as_mapping, as_str, as_strs

GOOD, BAD = "good", "bad"
NEAR_BEST = 0.85
"""A run that was slower than this part of the fastest one is not a good one, however it ended."""


@dataclass(frozen=True)
class Mark:
    verdict: str
    """good or bad"""
    note: str | None
    by: str | None
    at_s: float | None


@dataclass(frozen=True)
class RunSummary:
    run_id: str
    phase: RunPhase
    outcome: str
    """In words: `running`, `ended well`, `failed: exit code 1`, `was stopped (exit code 3)`."""
    failed: bool
    started_at: float | None
    """Unix time; of the launch where the training never began."""
    ended_at: float | None
    duration_s: float | None
    """Until now for a run that goes on."""
    step: int | None
    total_steps: int | None
    throughput: Throughput | None
    """The last that was said."""
    release: str | None
    """Tree hash."""
    git_commit: str | None
    git_branch: str | None
    git_dirty: int | None
    """Files that differed from the commit."""
    checkpoints: int
    """Complete ones."""
    launched_by: str | None
    command: tuple[str, ...]
    mark: Mark | None = None
    """What somebody thinks of it."""


def parse_runs(answer: Mapping[str, object], tails: bytes) -> tuple[RunSummary, ...]:
    """answer, tails: header and body of runs_overview. In its order, oldest first."""
    found = []
    at = 0
    runs = answer.get("runs")
    for value in runs if isinstance(runs, list) else []:
        raw = as_mapping(value)
        log = as_mapping(raw.get("log"))
        length = as_int(log.get("tail_bytes")) or 0
        tail, at = tails[at : at + length], at + length
        record = parse_run_record({**answer, "run": value})
        if record is not None:
            found.append(_summary(record, raw, tail, answer))
    return tuple(found)


def run_outcome(run: RunRecord) -> str:
    """A few words, without the times."""
    state = run.state
    if state.phase is RunPhase.ENDED and state.exit is not None:
        how = how_it_ended(state.exit)
        if state.exit.succeeded:
            return "ended well"
        return f"failed: {how}" if run.failed else f"was stopped ({how})"
    if state.phase in (RunPhase.RUNNING, RunPhase.STARTING, RunPhase.NONE):
        return str(state.phase.value)
    return one_line(": ".join((state.phase.value, *state.evidence[:1])))


def choose_run(ids: Sequence[str], wanted: str) -> str:
    """ids: oldest first; wanted: an id, its unique beginning, `last` or `latest`. Raises UsageError naming what there
    is."""
    if wanted in ids:
        return wanted
    newest = wanted in ("last", "latest")
    found = list(ids[-1:]) if newest else [run_id for run_id in ids if run_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"{len(found)} runs begin with {wanted!r}" if ids else "there are no runs yet",
        evidence=("they are: " if found else "the last ones: ") + ", ".join((found or ids)[-10:]) if ids else "",
        way_out="orch runs" if ids else "orch launch",
    )


def parse_mark(record: object) -> Mark | None:
    """mark.json. None: it is not marked."""
    raw = as_mapping(record)
    verdict = as_str(raw.get("verdict"))
    if verdict not in (GOOD, BAD):
        return None
    return Mark(verdict, as_str(raw.get("note")), as_str(raw.get("by")), as_float(raw.get("at")))


def last_good(runs: Sequence[RunSummary], *, before: str | None, least_per_s: float | None) -> tuple[str, str] | None:
    """(run id, why it counts as good). runs: oldest first; before: a run that is not to be found, nor one after it;
    least_per_s: what the inventory expects at least, in tokens.

    The newest that somebody marked good; else the newest that ended without failing and was about as fast as the
    fastest. None: there is none."""
    ids = [run.run_id for run in runs]
    earlier = runs[: ids.index(before)] if before in ids else runs
    marked = [run for run in earlier if run.mark and run.mark.verdict == GOOD]
    if marked:
        note = marked[-1].mark.note if marked[-1].mark else None
        return marked[-1].run_id, "marked good" + (f": {one_line(note)}" if note else "")
    well = [run for run in earlier if run.phase is RunPhase.ENDED and not run.failed and run.mark is None]
    rates = [rate for run in well if (rate := tokens_per_s(run)) is not None]
    if rates:
        least = NEAR_BEST * max(rates) if least_per_s is None else min(least_per_s, max(rates))
        well = [run for run in well if (tokens_per_s(run) or 0.0) >= least]
    return (well[-1].run_id, well[-1].outcome) if well else None


def tokens_per_s(run: RunSummary) -> float | None:
    """The last that was said; None when it counts something else."""
    rate = run.throughput.rate if run.throughput else None
    return rate.per_s if rate is not None and rate.counted == TOKENS and not rate.per_device else None


def _summary(run: RunRecord, raw: Mapping[str, object], tail: bytes, answer: Mapping[str, object]) -> RunSummary:
    ended = run.state.exit
    started_at = ended.started_at if ended and ended.started_at is not None else run.created_at
    ended_at = ended.ended_at if ended else None
    until = ended_at
    if until is None and run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        now = answer.get("now")
        until = float(now) if isinstance(now, (int, float)) else None
    throughput = merge(run.status, read_tail(tail, begins_whole=run.log_size_bytes == len(tail)))
    git = as_mapping(raw.get("git"))
    spec = as_mapping(raw.get("spec"))
    release = as_str(raw.get("tree_hash")) or (run.release.rsplit("/", 1)[-1] if run.release else None)
    return RunSummary(
        run_id=run.run_id,
        phase=run.state.phase,
        outcome=run_outcome(run),
        failed=run.failed,
        started_at=started_at,
        ended_at=ended_at,
        duration_s=max(0.0, until - started_at) if until is not None and started_at is not None else None,
        step=throughput.step if throughput else None,
        total_steps=throughput.total_steps if throughput else None,
        throughput=throughput,
        release=release,
        git_commit=as_str(git.get("commit")),
        git_branch=as_str(git.get("branch")),
        git_dirty=len(as_strs(git.get("dirty_files"))) if git else None,
        checkpoints=sum(checkpoint.complete for checkpoint in run.checkpoints),
        launched_by=as_str(spec.get("launched_by")),
        command=run.argv,
        mark=parse_mark(raw.get("mark")),
    )
