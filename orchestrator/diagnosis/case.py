"""Everything that was looked at of a run and its target, and what could not be: what the signatures judge.

Rule: pure; None is "not looked at", never "nothing there".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.diagnosis.comparable import Facts
from orchestrator.diagnosis.diff import Comparison, Difference
from orchestrator.diagnosis.pace import is_slow
from orchestrator.inventory.model import Payload
from orchestrator.ledger.records import RunRecord
from orchestrator.ledger.runs import RunSummary, tokens_per_s
from orchestrator.probes.compile_cache import CompileCache
from orchestrator.probes.container import ContainerFact
from orchestrator.probes.gpu import GpuFact
from orchestrator.probes.pace import LEAST_S, Pace
from orchestrator.probes.rate import TOKENS
from orchestrator.probes.throughput import Throughput
from orchestrator.probes.training import RunPhase

if TYPE_CHECKING:  # a status waits for its imports
    from orchestrator.probes.environment_finding import EnvironmentFinding
    from orchestrator.probes.kill_plan import KillPlan
    from orchestrator.probes.log_reading import LogReading

GOES_ON = (RunPhase.RUNNING, RunPhase.STARTING)
SELECTED = ("launch", "deploy", "stop", "reset", "status", "env check", "env sync", "cache show")
"""Commands that take their target as a word; the others, as `--target`."""
SHAPE = ("settings", "model", "gpus", "spec")
"""Kinds of difference that make two runs' rates no measure of one another, but for NO_SHAPE."""
OF_A_LAUNCH = ("settings", "spec", "cache", "compiler", "replaced", "loaded")
"""Kinds that a target has only while a run goes on."""
NO_SHAPE = re.compile(
    r"resumed from|data path|payload|(?:.*\.)?(?:steps|seed|every|max_steps|epochs|name|run_name|prompts)"
    r"|(?:log|checkpoint|checkpoints|evaluate|evaluation|export|trackers)\..*"
    r"|VBIOS|ECC|persistence mode|compute mode|power limit \(W\)"
)
"""Names of those that change nothing of how long a step takes, or ought to change nothing."""


@dataclass(frozen=True)
class NotLooked:
    what: str
    why: str


@dataclass(frozen=True)
class LinkTrouble:
    """The target could not be reached, or not all the way."""

    part: str
    """ssh: up to the host; pct: from there into the container."""
    what: str
    evidence: str
    way_out: str


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """One run, as its record and its log tell of it."""

    run_id: str
    record: RunRecord | None = None
    summary: RunSummary | None = None
    runtime: Mapping[str, object] | None = None
    cache_before: CompileCache | None = None
    """The compile caches as the launch found them."""
    pace: Pace | None = None
    throughput: Throughput | None = None
    log: LogReading | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Over minutes, not a moment: what its lines say, else what the payload says of its own long window."""
        measured = self.pace.rate(over=self.over) if self.pace is not None else None
        return measured if measured is not None else self._said_per_s

    @property
    def _said_per_s(self) -> float | None:
        """By the payload, once it has trained for a while."""
        status = self.record.status if self.record is not None else None
        if self.trained_s is not None and self.trained_s < LEAST_S:
            return None
        if status is not None and status.tokens_per_s is not None:
            return status.tokens_per_s
        long = self.throughput.long_rate if self.throughput is not None else None
        if long is not None and long.counted == TOKENS and not long.per_device:
            return long.per_s
        return tokens_per_s(self.summary) if self.summary is not None and self.pace is None else None

    @property
    def was_adopted(self) -> bool:
        """Somebody started it by hand: its code is no release, and nobody sees how it ends."""
        return self.summary is not None and self.summary.adopted

    @property
    def over(self) -> bool:
        return self.phase not in GOES_ON

    @property
    def trained_s(self) -> float | None:
        """Since its training began; else from its first line to its last, as an evaluation that follows is no training;
        without lines since it was started, which is the most that it can be. None: nobody tells."""
        if self.record is None:
            return None
        status, ended = self.record.status, self.record.state.exit
        until_s = ended.ended_at if ended is not None else status.updated_at if status is not None else None
        in_training = status is not None and status.phase == "training"
        began_s = status.phase_started_at if status is not None and in_training else None
        told = [one.at_s for one in self.pace.samples if one.at_s is not None] if self.pace is not None else []
        if began_s is None and told:
            began_s, until_s = told[0], told[-1]
        began_s = began_s if began_s is not None else self.record.created_at
        return None if until_s is None or began_s is None else until_s - began_s

    @property
    def phase(self) -> RunPhase | None:
        return self.record.state.phase if self.record is not None else None


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a status asks beside its own facts, now and then, of a run that goes on."""

    run_id: str
    cache_before: CompileCache | None
    pace: Pace | None
    good: RunFacts | None
    good_why: str
    comparison: Comparison | None
    edited: tuple[Difference, ...]
    variables: Mapping[str, str | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What of the target runs out."""

    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    shm_free_bytes: int | None = None
    load: float | None = None
    """Programs that wanted a processor, the mean of the last minute; of the host, where it can be asked."""
    cpus: int | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    target: str
    label: str
    past: bool = False
    """The run is not the newest one: commands have to name it."""
    named: bool = False
    """Commands have to name the target: the inventory has several."""
    now_s: float | None = None
    """The target's clock."""
    link: LinkTrouble | None = None
    payload: Payload | None = None
    run: RunFacts | None = None
    """Whose health is asked; None: there is no run yet."""
    good: RunFacts | None = None
    """The last good run before it."""
    good_why: str = ""
    comparison: Comparison | None = None
    """From the last good run to the run."""
    since: Comparison | None = None
    """From the run (without one to compare with: the last good) to the target as it is now."""
    cache_now: CompileCache | None = None
    cache_writers: tuple[tuple[str, Mapping[str, object]], ...] = ()
    """Runs since the cache was made anew, with their runtime.json, the oldest first."""
    snapshots: tuple[str, ...] | None = None
    """Kept copies of the cache, the newest last."""
    environment: tuple[EnvironmentFinding, ...] | None = None
    gpus: tuple[GpuFact, ...] | None = None
    gpu_error: str | None = None
    gpu_warnings: tuple[str, ...] = ()
    kernel_log: tuple[str, ...] | None = None
    memory_swing_seen: float | None = None
    """As memory_swing, of GPUs that were asked again and again."""
    processes: KillPlan | None = None
    """Who is on the GPUs, and what is left of runs, as a reset would see it."""
    container: ContainerFact | None = None
    machine: Machine | None = None
    clock_offset_s: float | None = None
    """The target's clock less ours."""
    variables: Mapping[str, str | None] | None = None
    """Of the run's environment, those whose values are kept."""
    edited_at_start: tuple[Difference, ...] = ()
    """Files that were not as deployed, or not as expected, when the run began, whatever the last good run had."""
    not_looked: tuple[NotLooked, ...] = ()

    @property
    def live(self) -> bool:
        return self.run is not None and self.run.phase in GOES_ON

    @property
    def same_shape(self) -> bool:
        """The last good run trained the same thing on the same devices, as far as both tell."""
        return not self.other_shape

    def changed(self, *kinds: str) -> tuple[Difference, ...]:
        """Differences of these kinds from the last good run to the run, then those from the run to now."""
        found = {(one.kind, one.name, one.part): one for one in differences(self.comparison, *kinds)}
        for one in differences(self.since, *(kind for kind in kinds if kind not in OF_A_LAUNCH)):
            found.setdefault((one.kind, one.name, one.part), one)
        return tuple(found.values())

    @property
    def does_well(self) -> bool:
        """It trains, or ended, as fast as the last good run: what differs from that has cost it nothing."""
        run, good = self.run, self.good
        here, there = (one.tokens_per_s if one is not None else None for one in (run, good))
        if run is None or run.record is None or run.record.failed or not here or not there:
            return False
        return self.same_shape and not is_slow(run.pace, here, there, over=run.over)

    @property
    def memory_swing(self) -> float | None:
        """How much of its highest use a GPU's memory goes up and down by, of the GPU that moves most; 0 to 1."""
        swings = [self.memory_swing_seen, self.run.pace.memory_swing if self.run and self.run.pace else None]
        return max((swing for swing in swings if swing is not None), default=None)

    @property
    def other_shape(self) -> tuple[Difference, ...]:
        """What makes the last good run's rate no measure of this one's."""
        return tuple(one for one in differences(self.comparison, *SHAPE) if not NO_SHAPE.fullmatch(one.name))

    def logs(self, *words: str) -> str:
        """`orch logs`, of the run that is judged."""
        return self.orch("logs", *((self.run.run_id,) if self.past and self.run is not None else ()), *words)

    def orch(self, *words: str) -> str:
        """A command line of orch, for this target."""
        verbs = 2 if words[0] in ("cache", "env") else 1
        if not self.named:
            argv = list(words)
        elif " ".join(words[:verbs]) in SELECTED:
            argv = [*words[:verbs], self.target, *words[verbs:]]  # an option may take the word behind it for its own
        else:
            own = words.index("--") if "--" in words else len(words)
            argv = [*words[:own], "--target", self.target, *words[own:]]
        return shlex.join(["orch", *argv])


def differences(comparison: Comparison | None, *kinds: str) -> tuple[Difference, ...]:
    """Those of these kinds; all without any."""
    found = comparison.differences if comparison is not None else ()
    return tuple(one for one in found if not kinds or one.kind in kinds)


def edited_files(facts: Facts) -> tuple[Difference, ...]:
    """Those that were not as deployed, or not as expected, whatever another run had."""
    return tuple(
        Difference(kind, name, None, value, kind)
        for kind in ("edited", "expected")
        for name, value in (facts.get(kind) or {}).items()
        if value is not None and (kind == "edited" or value.endswith("(not as expected)"))
    )
