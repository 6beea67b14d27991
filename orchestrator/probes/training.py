"""What the agent's run_facts mean: is the run running, how did it end, and how do we know?

Rule: live.lock and exit.json decide; everything else is evidence. What nobody recorded is said to be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.probes.text import one_line
from orchestrator.probes.values import as_bool, as_float, as_int, as_mapping, as_str, as_strs

_COUNTED = re.compile(r"\b(?P<number>[0-9]{1,6})(?: of |/)(?P<total>[0-9]{1,6})\b")

MOST_WARNINGS = 5
STARTING_S = 30.0
"""A start takes less: an older folder in which no wrapper has recorded itself is not being started."""


# Linux's on x86 and arm, 1 to 31: the target's, whatever machine reads this.
# fmt: off
_SIGNALS = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
)
# fmt: on


class RunPhase(Enum):
    NONE = "none"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    NOT_STARTED = "not started"
    """The program could not be executed, or the start was given up."""
    ENDED_UNKNOWN = "ended, outcome unknown"


@dataclass(frozen=True)
class TrainingStatus:
    """What the payload says of itself in status.json. Foreign payloads say nothing."""

    phase: str | None
    step: int | None
    total_steps: int | None
    loss: float | None
    tokens_per_s: float | None
    eta_s: float | None
    detail: str | None
    updated_at: float | None
    phase_started_at: float | None = None
    compile_done: int | None = None
    compile_total: int | None = None
    wait_shares: Mapping[str, float] | None = None
    """Role -> part of its time, 0 to 1, that it has waited at the queue."""
    compiled: Mapping[str, int] | None = None
    """compiles, cache_hits, cache_misses, aot_cache_hits, aot_cache_misses, cache_bypasses, fallbacks, recompiles,
    tracing_stuck: what torch's compiler did since the start."""
    warnings: tuple[str, ...] = ()
    """What a person should know and nothing failed for: a torch that nobody tried it on."""


@dataclass(frozen=True)
class CompileProgress:
    """A long healthy start: which of the graphs is being compiled."""

    number: int | None
    total: int | None
    elapsed_s: float | None
    """Since the compiling began."""


@dataclass(frozen=True)
class RunExit:
    exit_code: int | None
    signal: int | None
    start_error: str | None
    """Why the program could not be executed."""
    started_at: float | None
    ended_at: float | None
    max_rss_kib: int | None
    user_s: float | None
    system_s: float | None
    oom_kills: int | None
    """Processes of its cgroup killed for want of memory while it ran."""

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class RunState:
    phase: RunPhase
    run_id: str | None
    pid: int | None
    """Of the training's first process, where it was recorded."""
    exit: RunExit | None
    evidence: tuple[str, ...]
    """Sentences: why we think so."""
    notes: tuple[str, ...] = ()
    """Sentences: what is not as it should be."""
    stop_asked: bool = False
    """Somebody asked it to stop: an end that is not success is then no failure."""
    stopped_pids: tuple[int, ...] = ()
    """Processes of a live run that SIGSTOP or Ctrl-Z stopped, and no SIGCONT has let go on."""


def parse_status(record: object) -> TrainingStatus | None:
    """None when there is none, or it cannot be read."""
    raw = as_mapping(record)
    if not raw or "broken" in raw:
        return None
    phase, detail = as_str(raw.get("phase")), as_str(raw.get("detail"))
    return TrainingStatus(
        phase=None if phase is None else one_line(phase, 40),
        step=as_int(raw.get("step")),
        total_steps=as_int(raw.get("total_steps")),
        loss=as_float(raw.get("loss")),
        tokens_per_s=as_float(raw.get("tokens_per_s")),
        eta_s=as_float(raw.get("eta_s")),
        detail=None if detail is None else one_line(detail),
        updated_at=as_float(raw.get("updated_at")),
        phase_started_at=as_float(raw.get("phase_started_at")),
        compile_done=as_int(raw.get("compile_done")),
        compile_total=as_int(raw.get("compile_total")),
        wait_shares=_shares(raw.get("wait_shares")),
        compiled=_counts(raw.get("compiled")),
        warnings=tuple(one_line(text) for text in as_strs(raw.get("warnings"))[:MOST_WARNINGS]),
    )


def _counts(value: object) -> Mapping[str, int] | None:
    numbers = ((one_line(name, 40), as_int(count)) for name, count in as_mapping(value).items())
    return {name: count for name, count in numbers if count is not None} or None


def _shares(value: object) -> Mapping[str, float] | None:
    raw = as_mapping(value)
    numbers = ((one_line(role, 40), as_float(share)) for role, share in raw.items())
    return {role: share for role, share in numbers if share is not None and 0 <= share <= 1} or None


def compile_progress(status: TrainingStatus | None, now_s: float | None) -> CompileProgress | None:
    """None when it does not say that it compiles. now_s: the clock that wrote the status."""
    if status is None or status.phase != "compiling":
        return None
    elapsed_s = None
    if now_s is not None and status.phase_started_at is not None:
        elapsed_s = max(0.0, now_s - status.phase_started_at)
    done, total = status.compile_done, status.compile_total
    if done is not None and total is not None:
        return CompileProgress(min(done + 1, total), total, elapsed_s)
    counted = _COUNTED.search(status.detail or "")  # said in words only
    if counted is None:
        return CompileProgress(None, None, elapsed_s)
    return CompileProgress(int(counted["number"]), int(counted["total"]), elapsed_s)


def parse_exit(record: object) -> RunExit | None:
    """None when there is none, or it cannot be read."""
    raw = as_mapping(record)
    if not raw or "broken" in raw:
        return None
    error = as_mapping(raw.get("start_error"))
    return RunExit(
        exit_code=as_int(raw.get("exit_code")),
        signal=as_int(raw.get("signal")),
        start_error=one_line(as_str(error.get("message")) or "unknown", 500) if error else None,
        started_at=as_float(raw.get("started_at")),
        ended_at=as_float(raw.get("ended_at")),
        max_rss_kib=as_int(raw.get("max_rss_kib")),
        user_s=as_float(raw.get("user_s")),
        system_s=as_float(raw.get("system_s")),
        oom_kills=as_int(raw.get("oom_kills")),
    )


def judge_run(facts: Mapping[str, object]) -> RunState:
    """`facts` is the header of the agent's run_facts."""
    run = as_mapping(facts.get("run"))
    if not run:
        return RunState(RunPhase.NONE, None, None, None, ("no run has been started here",))
    run_id = as_str(run.get("id"))
    ended = parse_exit(run.get("exit"))
    state = _ended(ended) if ended is not None else _not_told(facts, run)
    phase, evidence, notes = state
    pid = as_int(run.get("training_pid"))
    told = run.get("stopped")
    is_live = phase in (RunPhase.RUNNING, RunPhase.STARTING)
    stopped = tuple([one for one in map(as_int, told) if one is not None]) if is_live and isinstance(told, list) else ()
    return RunState(
        phase,
        run_id,
        pid,
        ended,
        evidence,
        (*notes, *_stray_notes(run, phase), *map(stopped_text, stopped)),
        bool(as_mapping(run.get("stop"))),
        stopped,
    )


def stopped_text(pid: int) -> str:
    return f"pid {pid} is stopped (state T, by SIGSTOP or Ctrl-Z)"


_Judgement = tuple[RunPhase, tuple[str, ...], tuple[str, ...]]


def _ended(ended: RunExit) -> _Judgement:
    if ended.start_error is not None:
        return RunPhase.NOT_STARTED, (ended.start_error,), ()
    evidence = [how_it_ended(ended)]
    if ended.oom_kills:
        evidence.append(f"{ended.oom_kills} of its processes were killed for want of memory")
    return RunPhase.ENDED, tuple(evidence), ()


def _not_told(facts: Mapping[str, object], run: Mapping[str, object]) -> _Judgement:
    live = as_mapping(facts.get("live"))
    content = as_mapping(live.get("content"))
    held = as_bool(live.get("held")) is True and content.get("run_id") == run.get("id")
    wrapper_alive = as_bool(run.get("wrapper_alive")) is True
    if as_bool(run.get("training_alive")) is True:
        notes = [] if wrapper_alive else ["its wrapper is gone: the training goes on, its exit code will not be known"]
        if not held:
            notes.append("live.lock is not held by it")
        return RunPhase.RUNNING, ("the training's process lives",), tuple(notes)
    if held and wrapper_alive:
        if run.get("wrapper") is None:
            return RunPhase.STARTING, ("its wrapper holds live.lock",), ()
        return RunPhase.RUNNING, ("its wrapper holds live.lock",), ("the training has just ended",)
    if run.get("recorded") is None:
        early = _early(facts, run)
        if early is not None:
            return early
    broken = as_str(as_mapping(run.get("exit")).get("broken"))
    if broken:
        return RunPhase.ENDED_UNKNOWN, (f"the record of its end, {broken}, cannot be read",), ()
    evidence = [_why_unknown(run), *_what_happened(facts, run)]
    notes = ["live.lock is held by what the run left behind"] if held else []
    return RunPhase.ENDED_UNKNOWN, tuple(evidence), tuple(notes)


def _why_unknown(run: Mapping[str, object]) -> str:
    if as_mapping(as_mapping(run.get("spec")).get("adopted")):
        return "it was adopted: only who starts a process sees how it ends"
    return "nobody recorded how it ended"


def _early(facts: Mapping[str, object], run: Mapping[str, object]) -> _Judgement | None:
    """No wrapper has put itself down: too early to tell, or it never came."""
    now = as_float(facts.get("now"))
    created = as_float(as_mapping(run.get("spec")).get("created_at"))
    if now is not None and created is not None and 0 <= now - created < STARTING_S:
        return RunPhase.STARTING, ("its folder is there, its wrapper has not recorded itself yet",), ()
    if as_bool(run.get("claimed")) is not True:
        return RunPhase.NOT_STARTED, ("its folder is there, but no wrapper ever took it",), ()
    return None


def _what_happened(facts: Mapping[str, object], run: Mapping[str, object]) -> list[str]:
    found = []
    same_boot = as_bool(run.get("same_boot"))
    if same_boot is False:
        found.append(f"{_what_restarted(facts, run)} has been restarted since")
    before = as_int(as_mapping(run.get("wrapper")).get("oom_kills"))
    after = as_int(run.get("oom_kills"))
    if same_boot and before is not None and after is not None and after > before:
        found.append(f"{after - before} processes of its cgroup were killed for want of memory since it began")
    adopted = bool(as_mapping(as_mapping(run.get("spec")).get("adopted")))
    if same_boot and as_bool(run.get("wrapper_alive")) is False and not adopted:
        found.append("its wrapper is gone too, so it was killed")
    now, written = as_float(facts.get("now")), as_float(as_mapping(run.get("log")).get("mtime"))
    if now is not None and written is not None:
        found.append(f"its log was last written {max(0.0, now - written):.0f} s ago")
    return found


def _what_restarted(facts: Mapping[str, object], run: Mapping[str, object]) -> str:
    """The boot id does not tell: LXC gives a container a new one at each start."""
    booted = as_float(facts.get("booted_at"))
    begun = as_float(as_mapping(run.get("spec")).get("created_at"))
    if booted is None or begun is None:
        return "the container, or its machine,"
    return "the machine" if begun < booted else "the container"


def _stray_notes(run: Mapping[str, object], phase: RunPhase) -> tuple[str, ...]:
    strays = run.get("strays")
    if phase in (RunPhase.RUNNING, RunPhase.STARTING) or not isinstance(strays, list) or not strays:
        return ()
    pids = ", ".join(str(as_mapping(stray).get("pid")) for stray in strays)
    return (f"{len(strays)} processes of the run still live: {pids}",)


def how_it_ended(ended: RunExit) -> str:
    """One sentence, without a full stop."""
    if ended.exit_code is not None:
        if 128 < ended.exit_code < 128 + 65:
            return f"exit code {ended.exit_code}, {signal_name(ended.exit_code - 128)}"
        return f"exit code {ended.exit_code}"
    if ended.signal is not None:
        return f"killed by {signal_name(ended.signal)}"
    return "ended in an unknown way"


def signal_name(number: int) -> str:
    return f"SIG{_SIGNALS[number - 1]}" if 0 < number <= len(_SIGNALS) else f"signal {number}"
