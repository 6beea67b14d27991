"""run-dead, run-stalled, session-dead, slow, input-starved, drafter-starved: does the run go on, and as fast?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.diagnosis.case import Case, RunFacts
from orchestrator.diagnosis.finding import CRITICAL, INFO, WARNING, Finding
from orchestrator.diagnosis.pace import NEARLY, is_slow
from orchestrator.diagnosis.signatures.words import difference_text, failure_lines, failures, good_text, rate_line
from orchestrator.probes.text import one_line
from orchestrator.probes.training import RunPhase, stopped_text
from orchestrator.probes.units import duration_text, rate_text

COLLAPSED = 0.5
"""Of the last good rate: nothing that is merely slower was seen to be so slow."""
STALLED_S = {"training": 900.0, "evaluating": 3600.0, "checkpointing": 1800.0, "stopping": 1800.0}
"""Without a sign of life. A step takes seconds; an evaluation decodes between its signs."""
START_STALLED_S = 1800.0
"""A healthy start takes 8 to 10 minutes, and a graph of its own up to some of them."""
LOADED = 1.5
"""Programs that want a processor, for each there is: a training's own threads wait for GPUs, not for processors."""
SHOWN_PIDS = 8
WAITS = 0.6
ROSE_BY = 0.25
IDLE_PERCENT = 50.0
BUSY_THEN = 70.0


def dead(case: Case) -> Iterator[Finding]:
    run = case.run
    record = run.record if run is not None else None
    if run is None or record is None or not record.failed:
        return
    root = run.log.root if run.log is not None else None
    unknown = record.state.phase is RunPhase.ENDED_UNKNOWN
    evidence = list(record.state.evidence[0 if unknown else 1 :])  # the first is in what it says at once
    evidence += (
        [f"{root.title}: {line}" if n == 0 else line for n, line in enumerate(failure_lines(case, root))]
        if root
        else []
    )
    # A training that ends itself says why: settings that cannot be, a checkpoint that does not fit.
    own = record.status.detail if root is None and record.status and record.status.phase == "failed" else None
    evidence += [f"it said: {own}"] if own else []
    if record.last_checkpoint is not None:
        evidence.append(f"its last complete checkpoint: {record.last_checkpoint.name}")
    # Nobody sees how what was adopted ends: that alone is no failure.
    adopted = unknown and root is None and run.was_adopted
    if adopted and record.state.stop_asked:
        return
    again = "launch again" + (" from its last checkpoint" if record.last_checkpoint is not None else "")
    yield Finding(
        "run-dead",
        INFO if adopted else CRITICAL,
        f"run {run.run_id} " + ("ended, and nobody recorded how" if unknown else f"failed: {record.state.evidence[0]}"),
        tuple(one_line(line, 200) for line in evidence),
        root.title
        if root is not None
        else "what it said of itself"
        if own
        else "its log names no failure: it was killed, or the container or machine stopped",
        (root.remedy if root is not None else "read the end of its log, then " + again),
        case.logs("--traceback") if root is not None else case.logs("-n", "40"),
    )


def stalled(case: Case) -> Iterator[Finding]:
    record = case.run.record if case.run is not None else None
    if record is None or record.state.phase is not RunPhase.RUNNING or case.now_s is None:
        return
    if record.state.stopped_pids:
        yield _stopped(case, record.run_id, record.state.stopped_pids)
        return
    status = record.status
    signs = [at for at in (status.updated_at if status else None, record.log_written_at) if at is not None]
    if not signs:
        return
    silent_s = case.now_s - max(signs)
    phase = status.phase if status is not None and status.phase else None
    limit_s = STALLED_S.get(phase or "training", START_STALLED_S)
    if phase is None and not (case.run and case.run.throughput and case.run.throughput.step):
        limit_s = START_STALLED_S
    if silent_s < limit_s:
        return
    idle = [gpu for gpu in case.gpus or () if (gpu.utilization_percent or 0) < 5]
    evidence = [
        f"nothing was said for {duration_text(silent_s)}, in phase {phase or 'unknown'}",
        f"{duration_text(limit_s)} of it are healthy",
    ]
    evidence += [f"{len(idle)} of {len(case.gpus)} GPUs are idle"] if case.gpus else []
    yield Finding(
        "run-stalled",
        CRITICAL,
        f"run {record.run_id} lives and gets no further",
        tuple(evidence),
        "threads wait for one another: one of them failed without ending the process, or a GPU or file system hangs",
        "look at its last lines and stacks; then stop it (a checkpoint is asked for) and go on from the checkpoint",
        case.logs("-n", "60"),
    )


def _stopped(case: Case, run_id: str, pids: Sequence[int]) -> Finding:
    return Finding(
        "run-stalled",
        CRITICAL,
        f"run {run_id} lives and gets no further: a process of it is stopped",
        tuple(map(stopped_text, pids[:SHOWN_PIDS])),
        "somebody stopped it (kill -STOP, Ctrl-Z in its terminal) and did not let it go on",
        "let it go on with SIGCONT; orch stop does so, too, before it waits for the checkpoint",
        case.orch("exec", "--", "kill", "-CONT", *map(str, pids)),
    )


def diverged(case: Case) -> Iterator[Finding]:
    loss, record = last_loss(case), case.run.record if case.run is not None else None
    evidence = [line for one in failures(case, "divergence", "loss_scale_floor") for line in failure_lines(case, one)]
    if loss is not None and not math.isfinite(loss):
        told = case.run.throughput if case.run is not None else None
        step = record.status.step if record is not None and record.status is not None else told.step if told else None
        evidence.append(f"the last loss that was told: {loss}" + ("" if step is None else f", at step {step}"))
    if not evidence:
        return
    kept = record.last_checkpoint.name if record is not None and record.last_checkpoint is not None else None
    yield Finding(
        "diverged",
        CRITICAL,
        "the loss is not a number any more",
        (*evidence, *((f"its last complete checkpoint: {kept}",) if kept else ())),
        "a learning rate that is too high, a batch with values that overflow, or data that was damaged",
        ("stop it, and " if case.live else "")
        + "go on from a checkpoint before that step with a lower learning rate or stronger clipping",
        case.orch("stop") if case.live else case.logs("-n", "40"),
    )


def last_loss(case: Case) -> float | None:
    """The last that was told."""
    run = case.run
    status = run.record.status if run is not None and run.record is not None else None
    if status is not None and status.loss is not None:
        return status.loss
    return run.throughput.loss if run is not None and run.throughput is not None else None


def session_dead(case: Case) -> Iterator[Finding]:
    record = case.run.record if case.run is not None else None
    session = record.session if record is not None else None
    if not case.live or session is None or session.present is not False:
        return
    yield Finding(
        "session-dead",
        INFO,
        f"its tmux session {session.name} is closed; the run itself goes on",
        (session.note or "the session is a window on the log, not the way the run lives",),
        "somebody closed it, or tmux was ended",
        "follow the log instead; the next launch makes a session again",
        case.logs("-f"),
    )


def slow(case: Case) -> Iterator[Finding]:
    run = case.run
    here = run.tokens_per_s if run is not None else None
    if run is None or here is None:
        return
    low = case.payload.expected.tokens_per_s_min if case.payload is not None else None
    there = case.good.tokens_per_s if case.good is not None and case.same_shape else None
    below_good = there is not None and is_slow(run.pace, here, there, over=run.over)
    below_least = there is None and low is not None and is_slow(run.pace, here, low / NEARLY, over=run.over)
    if not below_good and not below_least:
        return
    changed = [one for one in case.comparison.differences if one.kind != "cache"] if case.comparison is not None else []
    evidence = [*rate_line(case)]
    evidence += [f"less than the {rate_text(low)} that the inventory expects"] if low is not None and here < low else []
    evidence += [f"differs: {difference_text(one)}" for one in changed[:4]]
    evidence += [load_text(case)] if is_loaded(case) else []
    yield Finding(
        "slow",
        CRITICAL if below_good and there is not None and here < COLLAPSED * there else WARNING,
        f"{rate_text(here)}: "
        + (
            f"{100 * (1 - here / there):.0f} % less than {good_text(case)}"
            if there
            else f"less than the {rate_text(low)} that are expected"
        ),
        tuple(evidence),
        f"most likely what differs: {difference_text(changed[0])}"
        if changed
        else "not known: nothing that is compared differs from the last good run"
        if there is not None and not is_loaded(case)
        else "other programs use the processors that it needs"
        if is_loaded(case)
        else "not known: there is no good run of the same shape to compare with",
        "take back what differs, one thing at a time, the first one first"
        if changed
        else "look at the GPUs and the host while it runs; launch again once, and compare",
        case.orch("diff") if changed else case.orch("status", "--watch"),
    )


def is_loaded(case: Case) -> bool:
    """More programs want a processor than there are, while the run goes on: the load of now tells nothing of then."""
    if not case.live:
        return False
    load, cpus = (case.machine.load, case.machine.cpus) if case.machine is not None else (None, None)
    return load is not None and cpus is not None and load > LOADED * cpus


def load_text(case: Case) -> str:
    assert case.machine is not None
    return f"the machine's load is {case.machine.load:.0f} on {case.machine.cpus} processors"


def starved(case: Case) -> Iterator[Finding]:
    """Only of a run that is slow: which side of the queue waits is no trouble by itself."""
    run, good = case.run, case.good
    if run is None or run.record is None or run.record.status is None or not any(slow(case)):
        return
    shares = run.record.status.wait_shares or {}
    good_status = good.record.status if good is not None and good.record is not None else None
    then = (good_status.wait_shares or {}) if good_status is not None else {}
    share = shares.get("drafter")
    if share is not None and share >= WAITS and share >= then.get("drafter", 0.0) + ROSE_BY:
        before = f"; {100 * then['drafter']:.0f} % at {good_text(case)}" if "drafter" in then else ""
        yield Finding(
            "drafter-starved",
            WARNING,
            f"the drafters wait {100 * share:.0f} % of their time for hidden states",
            (f"drafters waited {100 * share:.0f} %{before}", *rate_line(case)),
            "the target models are the slower side: too few of them, slower GPUs, or input that comes late",
            "give the targets more devices (`topology:`), or see why they are slower than before",
            case.orch("diff"),
        )
    here, there = _busy(run), _busy(good)
    target = shares.get("target", 0.0)
    if here is not None and here < IDLE_PERCENT and (there or 0.0) > BUSY_THEN and target < WAITS:
        yield Finding(
            "input-starved",
            WARNING,
            f"the GPUs are busy {here:.0f} % of the time",
            (f"utilisation {here:.0f} %; {there:.0f} % at {good_text(case)}", *rate_line(case)),
            "the data comes too late: storage, network or too few processor cores",
            "see whether the data moved, and what the container's processors do",
            case.orch("diff"),
        )


def _busy(run: RunFacts | None) -> float | None:
    """Mean utilisation over its lines, all GPUs."""
    samples = run.pace.samples if run is not None and run.pace is not None else ()
    rows = [one.utilization_percent for one in samples if one.utilization_percent][-30:]
    values = [value for row in rows for value in row]
    return sum(values) / len(values) if len(rows) >= 5 else None
