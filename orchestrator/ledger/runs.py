"""Many runs as their records tell of them, a few facts each.

Rule: pure; built only from the agent's runs_overview. Unknown is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Target
from orchestrator.ledger.records import RunRecord, parse_run_record
from orchestrator.ledger.remarks import KeptFinding, Note, parse_findings, parse_notes
from orchestrator.probes.compile_cache import parse_cache_stats
from orchestrator.probes.rate import TOKENS, Rate
from orchestrator.probes.text import one_line
from orchestrator.probes.throughput import Throughput, merge, read_end
from orchestrator.probes.training import RunPhase, how_it_ended
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str, as_strs

GOOD, BAD = "good", "bad"
NEAR_BEST = 0.85
"""A run that was slower than this part of the fastest one is not a good one, however it ended."""

END_LINES = 24
"""Of a log, the last ones: what its rate was at the end."""


WARMUP_OF = "warm-up of "
"""Before the payload's name, for a run that only compiles."""


WARMUP_OF = "warm-up of "
"""Before the payload's name, for a run that only compiles."""
BRIEF_S = 900.0
"""Loading and compiling take 8 to 10 minutes, and rates over less than some minutes vary 1.8 times on healthy runs."""
ENDED_WELL = "ended well"


@dataclass(frozen=True)
class Shape:
    """What of two runs must be the same for their speeds to be comparable. None: not known, and not compared."""

    payload: str | None
    targets: int | None = None
    """Devices that hold targets."""
    drafters: int | None = None

    @property
    def is_warmup(self) -> bool:
        return (self.payload or "").startswith(WARMUP_OF)

    def fits(self, other: Shape) -> bool:
        if self.is_warmup != other.is_warmup:
            return False
        mine, theirs = ((one.payload, one.targets, one.drafters) for one in (self, other))
        return all(a is None or b is None or a == b for a, b in zip(mine, theirs, strict=True))

    @property
    def text(self) -> str:
        """`dflash, 5 targets + 3 drafters`"""
        devices = [
            f"{count} {name}" for count, name in ((self.targets, "targets"), (self.drafters, "drafters")) if count
        ]
        return ", ".join(filter(None, (self.payload, " + ".join(devices)))) or "any payload"


@dataclass(frozen=True)
class Mark:
    verdict: str
    """good or bad"""
    note: str | None
    by: str | None
    at_s: float | None


@dataclass(frozen=True)
class CacheSize:
    """Of the compile caches together."""

    bytes: int | None
    files: int | None
    entries: int | None
    """Compiled graphs."""
    complete: bool
    """False: there is more."""


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
    shape: Shape = Shape(None)
    created_at: float | None = None
    """Unix time of the launch."""
    acceptance: float | None = None
    """Mean acceptance length, if the payload told it."""
    cache_before: CacheSize | None = None
    cache_after: CacheSize | None = None
    compiled: Mapping[str, int] | None = None
    """What torch's compiler did: compiles, cache_hits, cache_misses, fallbacks, recompiles."""
    trend: tuple[float, ...] = ()
    """The rate over its length, a few values, the oldest first."""
    findings: tuple[KeptFinding, ...] = ()
    looked: bool = False
    """The doctor looked at it. False: that is not recorded, and no findings say nothing of it."""
    notes: tuple[Note, ...] = ()
    adopted: bool = False
    """It was not started by orch."""
    broken: tuple[str, ...] = ()
    """Paths of its records that cannot be read."""


@dataclass(frozen=True)
class Good:
    """A run to compare with."""

    run: RunSummary
    why: str

    @property
    def run_id(self) -> str:
        return self.run.run_id


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
            return ENDED_WELL
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
        way_out=("orch runs" if wanted[:1].isdigit() else f"orch runs; to name a target: --target {wanted}")
        if ids
        else "orch launch",
    )


def shape_of(target: Target) -> Shape:
    """Of a run that is launched there now."""
    payload = target.payload
    if payload is None:
        return Shape(None)
    topology = payload.topology
    return Shape(payload.name, topology.targets if topology else 1, topology.drafters if topology else 1)


def parse_mark(record: object) -> Mark | None:
    """mark.json. None: it is not marked."""
    raw = as_mapping(record)
    verdict = as_str(raw.get("verdict"))
    if verdict not in (GOOD, BAD):
        return None
    return Mark(verdict, as_str(raw.get("note")), as_str(raw.get("by")), as_float(raw.get("at")))


def last_good(
    runs: Sequence[RunSummary], like: Shape, *, before: str | None = None, least_per_s: float | None = None
) -> Good | None:
    """What every comparison is made with: the first of good_runs. None: there is none."""
    good = good_runs(runs, like, before=before, least_per_s=least_per_s)
    return good[0] if good else None


def good_runs(
    runs: Sequence[RunSummary], like: Shape, *, before: str | None = None, least_per_s: float | None = None
) -> tuple[Good, ...]:
    """The good runs of this shape, the first is the one to compare with. runs: oldest first; before: a run that is not
    to be found, nor one after it; least_per_s: what the inventory expects at least, in tokens.

    Those that somebody marked good, the newest first; behind them those that ended without failing and were about as
    fast as the fastest of them, the newest first, and last those of them that were stopped soon. A run that is marked
    bad, or whose last loss is no number, is none."""
    ids = [run.run_id for run in runs]
    alike = [run for run in (runs[: ids.index(before)] if before in ids else runs) if run.shape.fits(like)]
    marked = [Good(run, _marked(run.mark)) for run in alike if run.mark and run.mark.verdict == GOOD]
    ended = [run for run in alike if run.phase is RunPhase.ENDED and not run.failed]
    well = [run for run in ended if run.mark is None and not _diverged(run)]
    fastest: dict[tuple[str, bool], float] = {}
    for run in well:
        if (rate := rate_of(run)) is not None:
            kind = (rate.counted, rate.per_device)
            fastest[kind] = max(rate.per_s, fastest.get(kind, 0.0))
    well = [run for run in well if _fast(run, fastest, least_per_s)]
    well.sort(key=_was_brief, reverse=True)
    return (*reversed(marked), *(Good(run, run.outcome) for run in reversed(well)))


def _diverged(run: RunSummary) -> bool:
    """Its last loss is no number: many trainings go on, and end with 0."""
    loss = run.throughput.loss if run.throughput is not None else None
    return loss is not None and not math.isfinite(loss)


def _was_brief(run: RunSummary) -> bool:
    """Stopped before it can have shown its speed: good only where there is no other."""
    return run.outcome != ENDED_WELL and run.duration_s is not None and run.duration_s < BRIEF_S


def rate_of(run: RunSummary) -> Rate | None:
    """What its speed is judged by: over the long window where that is known."""
    told = run.throughput
    return None if told is None else told.long_rate or told.rate


def tokens_per_s(run: RunSummary) -> float | None:
    """None when it counts something else."""
    rate = rate_of(run)
    return rate.per_s if rate is not None and rate.counted == TOKENS and not rate.per_device else None


def _fast(run: RunSummary, fastest: Mapping[tuple[str, bool], float], least_per_s: float | None) -> bool:
    """One that said no rate is none where others did."""
    rate = rate_of(run)
    if rate is None:
        return not fastest
    kind = (rate.counted, rate.per_device)
    if least_per_s is not None and kind == (TOKENS, False):
        return rate.per_s >= min(least_per_s, fastest[kind])
    return rate.per_s >= NEAR_BEST * fastest[kind]


def _marked(mark: Mark) -> str:
    return "marked good" + (f": {one_line(mark.note)}" if mark.note else "")


def _summary(run: RunRecord, raw: Mapping[str, object], tail: bytes, answer: Mapping[str, object]) -> RunSummary:
    ended = run.state.exit
    started_at = ended.started_at if ended and ended.started_at is not None else run.created_at
    wrapper = as_mapping(raw.get("wrapper"))
    ended_at = ended.ended_at if ended else as_float(wrapper.get("ended_at"))
    until = ended_at
    if until is None and run.state.phase in (RunPhase.RUNNING, RunPhase.STARTING):
        now = answer.get("now")
        until = float(now) if isinstance(now, (int, float)) else None
    throughput = _throughput(run, tail)
    git = as_mapping(raw.get("git"))
    spec = as_mapping(raw.get("spec"))
    release = as_str(raw.get("tree_hash")) or (run.release.rsplit("/", 1)[-1] if run.release else None)
    return RunSummary(
        run_id=run.run_id,
        phase=run.state.phase,
        outcome=("warm-up " if spec.get("warmup") else "") + run_outcome(run),
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
        git_dirty=as_int(git.get("dirty")),
        checkpoints=sum(checkpoint.complete for checkpoint in run.checkpoints),
        launched_by=as_str(spec.get("launched_by")),
        command=run.argv,
        mark=parse_mark(raw.get("mark")),
        shape=_shape(spec),
        created_at=run.created_at,
        acceptance=as_float(as_mapping(run.result).get("acceptance_length")),
        cache_before=_cache_size(raw.get("cache_before")),
        cache_after=_cache_size(raw.get("cache_after")),
        compiled=run.status.compiled if run.status else None,
        trend=_trend(as_mapping(raw.get("samples"))),
        findings=parse_findings(raw.get("remarks")),
        looked=as_bool(as_mapping(raw.get("remarks")).get("looked")) is True,
        notes=parse_notes(raw.get("remarks")),
        adopted=bool(spec.get("adopted")),
        broken=(*run.broken, *as_strs(raw.get("broken"))),
    )


def _shape(spec: Mapping[str, object]) -> Shape:
    """A warm-up trains nothing: it is like other warm-ups of its payload, and no run to compare with."""
    payload = as_str(spec.get("payload"))
    if spec.get("warmup"):
        payload = f"{WARMUP_OF}{payload}"
    return Shape(payload, as_int(spec.get("targets")), as_int(spec.get("drafters")))


def _throughput(run: RunRecord, tail: bytes) -> Throughput | None:
    """A log is read only where status.json leaves anything open: reading lines takes most of the time of a list."""
    said = run.status
    if said is not None and None not in (said.step, said.total_steps, said.loss, said.tokens_per_s):
        return merge(said, None)
    return merge(said, read_end(tail, begins_whole=run.log_size_bytes == len(tail), lines=END_LINES))


def _cache_size(told: object) -> CacheSize | None:
    cache = parse_cache_stats(told)
    return CacheSize(cache.bytes, cache.files, cache.entries, cache.complete) if cache else None


def _trend(samples: Mapping[str, object]) -> tuple[float, ...]:
    """Of one kind of rate: the one that was told most often."""
    numbers, lines = samples.get("tokens_per_s"), as_strs(samples.get("lines"))
    if isinstance(numbers, list):
        return tuple(value for one in numbers if (value := as_float(one)) is not None)
    if not lines:
        return ()
    from orchestrator.probes.printed import read_line  # its patterns are compiled where a line is read at all

    readings = (read_line(one_line(line, 1000)) for line in lines)
    rates = [reading.rates[0] for reading in readings if reading is not None and reading.rates]
    kinds = [(rate.counted, rate.per_device) for rate in rates]
    kind = max(kinds, key=kinds.count, default=None)
    return tuple(rate.per_s for rate in rates if (rate.counted, rate.per_device) == kind)
