"""A case -> what is wrong with it, the cause first; what is healthy; what could not be looked at.

Rule: pure. A cause is as severe as what it made: a change that nothing suffers from is worth a word, the same change
under a run that is slow or dead is what to mend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from orchestrator.diagnosis.case import Case, NotLooked, differences
from orchestrator.diagnosis.finding import CRITICAL, INFO, SYMPTOMS, WARNING, Finding, ranked
from orchestrator.diagnosis.signatures import cache, changes, compiled, environment, gpus, link, machine, run
from orchestrator.diagnosis.signatures.words import difference_text, held_text
from orchestrator.ledger.runs import run_outcome
from orchestrator.probes.pace import LEAST_S
from orchestrator.probes.training import RunPhase
from orchestrator.probes.units import bytes_text, rate_text

Signature = Callable[[Case], Iterable[Finding]]
Seen = Callable[[Case], str | None]

NO_MATTER = "-"
COMPARED = ("rate", "environment", "code, settings and data")
"""Areas that tell nothing without a run that went well."""
OF_NOW = ("processes", "GPUs", "disk and /dev/shm", "memory")
"""Areas that only the target tells of, as it is now."""
NAMED_CAUSES = frozenset({"slow", "run-dead", "run-stalled", "session-dead", "clock", "memory", "eager-fallback"})
"""That name no cause of a slow run."""
SELF_EVIDENT = frozenset(
    (
        *("missing-library", "fx-race", "torch-changed", "recompile-limit"),
        *("disk-full", "gpu-lost", "gpu-ecc", "shm-small", "stray-process"),
    )
)
"""What a log, a counter or the machine itself says: with such a cause, changes are no more than changes."""
LIFTED = (
    "data-changed",
    "environment-polluted",
    "cuda-major",
    "code-edited",
    "settings-changed",
    "cold-cache",
    "warm-up-insufficient",
)
"""Changes that are no trouble by themselves."""
OUTSIDE = frozenset(
    (
        *("hub_access", "stale_mount", "dead_mount", "read_only", "io_error", "disk_quota", "inodes_full"),
        *("open_files", "process_limit", "nccl_remote_error"),
    )
)
"""Failures that the log itself lays to the world around a run: no change of code, data or settings is then to blame."""
SENT = frozenset((1, 2, 9, 15))
"""HUP, INT, KILL, TERM: somebody else sends them; no code, data or setting makes them."""
HARMLESS = re.compile(r"(?:.*\.)?(?:steps|max_steps|epochs|seed|name|run_name)|(?:log|trackers)\..*")
"""Settings that say how long and what for, and nothing of how: a run neither dies nor slows down of one."""
LIFTED_BY_A_RATE = ("gpu-neighbour",)
"""What is there now may have slowed a run that is over down; it ended none."""


@dataclass(frozen=True)
class Area:
    """What is looked at together."""

    name: str
    ids: tuple[str, ...]
    signatures: tuple[Signature, ...]
    seen: Seen
    """What to say of it when nothing is wrong; None: it was not looked at; NO_MATTER: it is none of this case's."""
    cheap: bool = True
    """Judged in each status, too, of what that asks anyhow."""


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]
    """The cause first."""
    healthy: tuple[str, ...]
    not_looked: tuple[NotLooked, ...]


def diagnose(case: Case) -> Diagnosis:
    if case.link is not None:
        return Diagnosis(tuple(link.unreachable(case)), (), (NotLooked("all of the target", case.link.what),))
    found = _judged(case, AREAS)
    bad = {one.id for one in found if one.severity != INFO}
    told = {one.id for one in found}
    healthy: list[str] = []
    not_looked = list(case.not_looked)
    for area in AREAS:
        text = area.seen(case)
        if text is None:
            not_looked.append(NotLooked(area.name, _why_not(case, area)))
        elif text != NO_MATTER and not told & {*area.ids}:
            healthy.append(f"{area.name} ({text})")
    if not bad & ({*AREA_IDS} - NAMED_CAUSES):
        found = tuple(_with_healthy(one, healthy) if one.id == "slow" else one for one in found)
    return Diagnosis(found, tuple(healthy), tuple({one.what: one for one in reversed(not_looked)}.values())[::-1])


def cheap_findings(case: Case) -> tuple[Finding, ...]:
    """Of what a status asks anyhow."""
    return _judged(case, [area for area in AREAS if area.cheap])


def _judged(case: Case, areas: Iterable[Area]) -> tuple[Finding, ...]:
    found = ranked(_lifted(case, (one for area in areas for signature in area.signatures for one in signature(case))))
    causes = [one for one in found if one.severity != INFO and one.id not in NAMED_CAUSES]
    return tuple(_after(one, causes[0], case) if one.id == "run-dead" and causes else one for one in found)


def _after(dead: Finding, cause: Finding, case: Case) -> Finding:
    """What to do about a dead run whose cause is named."""
    record = case.run.record if case.run is not None else None
    resume = ("--resume",) if record is not None and record.last_checkpoint is not None else ()
    step = f"mend {cause.id} first; then " + ("go on from its checkpoint" if resume else "launch again")
    return replace(dead, cause=f"most likely {cause.id}, above", next_step=step, command=case.orch("launch", *resume))


def _lifted(case: Case, found: Iterable[Finding]) -> Iterator[Finding]:
    """With what a run suffers from, a change is a cause."""
    listed = list(found)
    root = case.run.log.root if case.run is not None and case.run.log is not None else None
    from_outside = root.kind in OUTSIDE if root is not None else _was_killed(case, listed)
    explained = {"run-dead"} if from_outside else set()
    suffers = [one.severity for one in listed if one.id in {*SYMPTOMS} - explained and one.severity != INFO]
    slowed = any(one.id in ("slow", "eager-fallback") and one.severity != INFO for one in listed)
    direct = any(one.id in SELF_EVIDENT and one.severity == CRITICAL for one in listed)
    for one in listed:
        lifted = (one.id in LIFTED and not _is_harmless(case, one)) or (slowed and one.id in LIFTED_BY_A_RATE)
        if lifted and suffers and not direct:
            worse = CRITICAL if CRITICAL in (*suffers, one.severity) else WARNING
            yield replace(one, severity=worse)
        else:
            yield one


def _was_killed(case: Case, listed: Iterable[Finding]) -> bool:
    """By somebody, or together with its container or machine; for want of memory is another matter."""
    state = case.run.record.state if case.run is not None and case.run.record is not None else None
    if state is None or any(one.id == "memory" for one in listed):
        return False
    if state.exit is None:
        return state.phase is RunPhase.ENDED_UNKNOWN
    return state.exit.signal in SENT or (state.exit.exit_code or 0) - 128 in SENT


def _is_harmless(case: Case, one: Finding) -> bool:
    changed = differences(case.comparison, *changes.OF_THE_RUN) if one.id == "settings-changed" else ()
    return bool(changed) and all(each.kind == "settings" and HARMLESS.fullmatch(each.name) for each in changed)


def _with_healthy(one: Finding, healthy: list[str]) -> Finding:
    return replace(one, evidence=(*one.evidence, f"healthy: {', '.join(healthy)}")) if healthy else one


def _why_not(case: Case, area: Area) -> str:
    told = next((one.why for one in case.not_looked if one.what == area.name), None)
    if told is not None:
        return told
    if case.run is None:
        return "there is no run yet"
    if area.name == "rate" and case.run.tokens_per_s is None:
        return f"it has not told of {LEAST_S / 60:.0f} minutes of training, or counts no tokens"
    if case.past and area.name in OF_NOW:
        return "a past run is judged by its record alone"
    if case.good is None and area.name in COMPARED:
        return "there is no good run before it to compare with"
    if area.name == "rate" and case.other_shape:
        return f"the last good run had another shape: {difference_text(case.other_shape[0])}"
    if area.name == "rate" and case.good is not None and not case.good.tokens_per_s:
        return f"the last good run has not told of {LEAST_S / 60:.0f} minutes of training, or counts no tokens"
    return "its records do not tell"


def _of_run(case: Case) -> str | None:
    record = case.run.record if case.run is not None else None
    if record is None:
        return None
    return f"{record.run_id} {run_outcome(record)}"


def _of_loss(case: Case) -> str | None:
    loss = run.last_loss(case)
    return None if loss is None else f"{loss:.4g}"


def _of_rate(case: Case) -> str | None:
    here = case.run.tokens_per_s if case.run is not None else None
    if here is None or case.good is None or not case.good.tokens_per_s or not case.same_shape:
        return None
    return f"{rate_text(here)}, last good {rate_text(case.good.tokens_per_s)}"


def _of_compiled(case: Case) -> str | None:
    status = case.run.record.status if case.run is not None and case.run.record is not None else None
    if status is not None and status.compiled is not None:
        return f"{status.compiled.get('fallbacks', 0)} fallbacks, {status.compiled.get('recompiles', 0)} recompiles"
    return "nothing in its log" if case.run is not None and case.run.log is not None else None


def _of_cache(case: Case) -> str | None:
    before = case.run.cache_before if case.run is not None else None
    cached = before if before is not None else case.cache_now
    return None if cached is None else held_text(cached)


def _of_environment(case: Case) -> str | None:
    if case.environment is None and case.comparison is None:
        return None
    if case.environment is not None and not any(one.kind == "no_baseline" for one in case.environment):
        return "as its lock or baseline says"
    return "as at the last good run" if case.comparison is not None else None


def _of_changes(case: Case) -> str | None:
    return None if case.comparison is None else "as at the last good run"


def _of_processes(case: Case) -> str | None:
    return None if case.processes is None else "no strays"


def _of_gpus(case: Case) -> str | None:
    return None if case.gpus is None else f"{len(case.gpus)}"


def _of_machine(case: Case) -> str | None:
    free = case.machine.disk_free_bytes if case.machine is not None else None
    return None if free is None else f"{bytes_text(free)} free"


def _of_memory(case: Case) -> str | None:
    container = case.container
    if container is None or container.memory_used_bytes is None:
        return None
    limit = container.memory_limit_bytes
    return bytes_text(container.memory_used_bytes) + (f" of {bytes_text(limit)}" if limit else "")


def _of_session(case: Case) -> str | None:
    if not case.live or (case.payload is not None and case.payload.session is None):
        return NO_MATTER
    session = case.run.record.session if case.run is not None and case.run.record is not None else None
    if session is None or session.present is None:
        return None
    return session.name


def _of_clock(case: Case) -> str | None:
    return None if case.clock_offset_s is None else f"{case.clock_offset_s:+.0f} s"


AREAS: tuple[Area, ...] = (
    Area("run", ("run-dead", "run-stalled"), (run.dead, run.stalled), _of_run),
    Area("loss", ("diverged",), (run.diverged,), _of_loss),
    Area("rate", ("slow", "input-starved", "drafter-starved"), (run.slow, run.starved), _of_rate),
    Area(
        "compiled code",
        ("fx-race", "recompile-limit", "eager-fallback", "torch-changed"),
        (compiled.fx_race, compiled.torch_changed, compiled.recompile_limit, compiled.eager_fallback),
        _of_compiled,
    ),
    Area(
        "compile cache",
        ("cold-cache", "warm-up-insufficient", "seed-missed", "hacked-cache"),
        (cache.lost, cache.lost_since, cache.seed_missed, cache.hacked),
        _of_cache,
    ),
    Area(
        "environment",
        ("environment-polluted", "cuda-major", "missing-library"),
        (environment.missing_library, environment.polluted, environment.cuda_major),
        _of_environment,
    ),
    Area(
        "code, settings and data",
        ("code-edited", "settings-changed", "data-changed"),
        (changes.code_edited, changes.settings_changed, changes.data_changed),
        _of_changes,
    ),
    Area("processes", ("stray-process", "gpu-neighbour"), (gpus.stray, gpus.neighbour), _of_processes),
    Area("GPUs", ("gpu-lost", "gpu-ecc", "gpu-throttled"), (gpus.lost, gpus.ecc, gpus.throttled), _of_gpus),
    Area("disk and /dev/shm", ("disk-full", "shm-small"), (machine.disk, machine.shm), _of_machine),
    Area("memory", ("memory",), (machine.memory,), _of_memory),
    Area("session", ("session-dead",), (run.session_dead,), _of_session),
    Area("clock", ("clock",), (link.clock,), _of_clock),
)
AREA_IDS = tuple(one for area in AREAS for one in area.ids)
