"""The drafter's training loop.

Rule: reads top to bottom; a step is a function of the batches and the state before it, and of nothing else, so a run
resumed from a checkpoint equals the uninterrupted one.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import contract
import fx_guard
import torch
from checkpoint import Checkpoint, NotSaved, last_checkpoint, save_checkpoint
from config import Config, ConfigError
from devices import Placement
from drafter import Drafter
from export import warm_start
from feed import Course, Feed, Queues, Waits
from forward import Ends, ends_on
from handoff import Handoff
from links import Links
from meter import AcceptanceSince, PhaseTimes, mean_facts
from optimise import NotANumber, TrainingError, check_gradients
from plan import CompileItem, CompilePlan, compile_plan
from prepare import Prepared, another_target
from progress import Progress, peak_memory_mib
from rank_crew import RankCrew
from sealing import EagerFallback, Recompiled, Seal
from start import Run
from stopping import StopRequest
from warmup import compile_all
from workers import Crew, Learned, Replica, mean

THREAD_END_S = 60.0
LEAST_TO_JUDGE = 20
"""Batches over which the simulated acceptance of a checkpoint is taken, before it may be called the best."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What there is to train, and with what."""

    run: Run
    prepared: Prepared
    drafter: Drafter
    resumed: Optional[Checkpoint]
    placement: Placement
    links: Optional[Links] = None
    """To the other processes of the run, where it has any; then the drafter is one of several."""


def train_drafter(task: Task, *, only_compile: bool = False) -> bool:
    """only_compile: return when all is compiled, before the first batch.

    True when all steps are done, False when stopped before; a checkpoint is saved either way.

    Raises TrainingError, NotSaved of the last checkpoint, and whatever went wrong in a target's or a replica's thread.
    """
    config, progress, stop = task.run.config, task.run.progress, task.run.stop
    if task.resumed is not None:
        task.drafter.load_state_dict(task.resumed.weights)
        torch.set_rng_state(task.resumed.random_state)
    course = course_of(config, task.resumed, task.placement)
    crew, feed = workers_of(task, course)
    plan = compile_plan(config, task.prepared.width, [str(device) for device in task.placement.drafters])
    compile_before_workers(plan, crew, task.prepared, config, progress, stop)
    progress.start_part("compile")
    if only_compile:
        crew.close()
        return True
    training = Training(task, course, crew, feed, plan)
    training.start()
    try:
        task.drafter.train()
        while training.step < config.steps and not crew.stop_asked(stop):
            training.tell(training.take_step())
            if training.step % config.checkpoint.every_steps == 0 and training.step < config.steps:
                training.save_on_the_way()
    except NotANumber as error:
        raise TrainingError(training.not_a_number(error)) from error
    except (EagerFallback, Recompiled) as error:
        training.save_what_was_compiled()
        raise TrainingError(f"after step {training.step}, which is saved: {error}") from error
    finally:
        feed.close(THREAD_END_S)
        crew.close()

    stopped = crew.stop_asked(stop)
    progress.phase("stopping" if stopped else "checkpointing")
    training.save()
    if crew.leads:
        progress.say(f"checkpoint: {task.run.folder / contract.CHECKPOINTS / f'step-{training.step}'}")
    return not stopped


class Training:
    """Between any two of its methods it stands after `step`, and can be saved there."""

    def __init__(self, task: Task, course: Course, crew: Crew, feed: Queues, plan: CompilePlan) -> None:
        self.step = course.first_step - 1
        self._task, self._course, self._crew, self._feed, self._plan = task, course, crew, feed, plan
        self._seal = Seal(strict=task.run.config.compile.strict)
        self._phases, self._accepted = PhaseTimes(), AcceptanceSince()
        self._began = time.monotonic()
        self._rows: List[int] = []
        """Those last learned from."""
        self._gradient_norm: Optional[float] = None
        """Of the last step."""

    def start(self) -> None:
        """All is compiled: what compiles from here on was not planned. Batches begin to come."""
        self._seal.close()
        for replica, queues in zip(self._crew.replicas, self._feed.queues, strict=True):
            replica.queues = queues
        self._task.run.progress.start_training(self.step, self._task.run.config.steps)
        self._began = time.monotonic()
        self._feed.start()

    def take_step(self) -> List[Learned]:
        """Raises NotANumber, EagerFallback, Recompiled; then `step` is the one before."""
        now = self.step + 1
        with self._phases("learn"):  # waiting for batches, forward, backward
            learned = self._crew.learn(now, self._course, self._seal)
        self._rows = [row for part in learned for row in part.rows]
        self._accepted.add(part.outcome for part in learned if part.outcome is not None)
        with self._phases("average"):
            self._crew.average_gradients()
        if now == self._course.first_step:
            check_gradients(self._task.drafter)
        with self._phases("optimise"):
            self._gradient_norm = self._crew.each(lambda replica: replica.optimisation.step())[0]
        self._phases.step_done()
        self.step = now
        return learned

    def tell(self, learned: List[Learned]) -> None:
        """Of the step that was just taken."""
        config, progress = self._task.run.config, self._task.run.progress
        if self.step == self._course.first_step:
            progress.start_part("step")
        loss = mean([part.loss for part in learned]) or 0.0
        progress.step(self.step, config.steps, sum(part.tokens for part in learned), loss)
        if any(part.compiled for part in learned):
            progress.say(f"step {self.step}: compiled what was not planned: {self._seal.counts()}")
        if self.step % config.log.every_steps == 0 or self.step in (self._course.first_step, config.steps):
            self._tell_at_length(learned, loss)

    def _tell_at_length(self, learned: List[Learned], loss: float) -> None:
        """A line of the log and its record. Waits for the devices."""
        progress = self._task.run.progress
        every = self._crew.gather(Shared.of(learned, self._feed, compile_facts(self._plan, self._seal)))
        counts = add_counts(one.compiled for one in every)
        facts = line_facts(every, self._course, time.monotonic() - self._began)
        facts["gradient_norm"] = self._gradient_norm
        facts["learning_rate"] = self._crew.replicas[0].optimisation.learning_rate
        progress.line(self.step, self._task.run.config.steps, loss, {**facts, **self._phases.take(), **counts})
        progress.compiled(counts)
        if counts.get("tracing_stuck"):
            progress.warn(fx_guard.STUCK)
        progress.waits({"target": facts["target_wait_share"], "drafter": facts["drafter_wait_share"]})

    def save(self) -> None:
        """By the leader, once the replicas are known to be equal. Raises ReplicasDiffer, NotSaved."""
        task, config = self._task, self._task.run.config
        self._crew.check_equal(self.step)
        least = min(LEAST_TO_JUDGE, config.checkpoint.every_steps)
        told = self._crew.gather(self._accepted.take(least=least))
        if not self._crew.leads:
            return
        save_checkpoint(
            task.run.folder / contract.CHECKPOINTS,
            step=self.step,
            drafter=task.drafter,
            optimisation=self._crew.replicas[0].optimisation.state(),
            config=config,
            prepared=task.prepared.folder,
            chapters=task.prepared.chapters,
            batches_met=self._course.met_after(self.step),
            keep=config.checkpoint.keep,
            acceptance=mean([one for one in told if one is not None]),
            target=task.prepared.target_identity,
        )

    def save_on_the_way(self) -> None:
        progress = self._task.run.progress
        progress.phase("checkpointing")
        try:
            self.save()
        except NotSaved as error:  # the disk may have room again at the next one
            progress.warn(str(error))
        progress.phase("training")

    def not_a_number(self, error: NotANumber) -> str:
        """Where it came up, and what there is to go back to."""
        known = last_checkpoint(self._task.run.folder / contract.CHECKPOINTS)
        where = str(error) if "rows" in str(error) else f"{error}; rows {self._rows}"
        return f"step {self.step + 1}: {where}; last good checkpoint: {known or 'none'}"

    def save_what_was_compiled(self) -> None:
        """When a step was not: those before it were, and are kept."""
        self._task.run.progress.compiled(compile_facts(self._plan, self._seal))
        if self.step >= self._course.first_step:
            self.save()


def new_drafter(config: Config, prepared: Prepared, device: torch.device, resumed: Optional[Checkpoint]) -> Drafter:
    """Untrained, or as drafter.start_from has it; the same in every process that makes it. Raises ConfigError."""
    shape = prepared.target.drafter_shape(intermediate_size=config.drafter.intermediate_size)
    drafter: Drafter = Drafter(shape, seed=config.seed)
    if config.drafter.start_from and resumed is None:
        try:
            warm_start(drafter, Path(config.drafter.start_from), prepared.target, prepared.vocabulary)
        except (OSError, ValueError) as error:
            raise ConfigError(f"drafter.start_from: {error}") from error
    drafter.to(device)
    drafter.recompute = config.train.recompute
    return drafter


def course_of(config: Config, resumed: Optional[Checkpoint], placement: Placement) -> Course:
    return Course(
        first_step=(resumed.step if resumed else 0) + 1,
        last_step=config.steps,
        batches_met=resumed.batches_met if resumed else 0,
        parts=config.train.accumulation,
        replicas=len(placement.drafters),
        targets=len(placement.targets),
    )


def workers_of(task: Task, course: Course) -> Tuple[Crew, Queues]:
    """Either engine's. With links: this process's replica, and what its targets send it."""
    config, prepared, drafter, links = task.run.config, task.prepared, task.drafter, task.links
    if links is None:
        crew = Crew(make_replicas(task), config.threads)
        return crew, Feed(course, targets_for(prepared, task.placement), task.placement.drafters, config)
    ends = ends_on(links.device, prepared.target)
    replica = Replica(links.rank.index, drafter, ends, prepared.vocabulary.mask_id, config)
    if task.resumed is not None:
        replica.optimisation.load_state(task.resumed.optimisation)
    width = drafter.shape.selected_layers * drafter.shape.hidden_size
    features = torch.empty(0, width, dtype=ends.embed.weight.dtype, device=links.device)
    return RankCrew(replica, links, config.threads, task.run.stop), Handoff(course, prepared, config, links, features)


def make_replicas(task: Task) -> List[Replica]:
    """The first has the given drafter, the others copies of it on their devices."""
    ends: Dict[torch.device, Ends] = {}
    replicas = []
    for number, device in enumerate(task.placement.drafters):
        if device not in ends:
            ends[device] = ends_on(device, task.prepared.target)
        own = task.drafter if number == 0 else copy.deepcopy(task.drafter).to(device)
        replica = Replica(number, own, ends[device], task.prepared.vocabulary.mask_id, task.run.config)
        if task.resumed is not None:
            # An optimizer keeps the very tensors it is given: two that share them take every step twice.
            state = task.resumed.optimisation
            replica.optimisation.load_state(state if number == 0 else copy.deepcopy(state))
        replicas.append(replica)
    return replicas


def targets_for(prepared: Prepared, placement: Placement) -> List[Prepared]:
    """What each target thread works with: the first has the target there is, the others load their own."""
    others = [dataclasses.replace(prepared, target=another_target(prepared, d)) for d in placement.targets[1:]]
    return [prepared, *others]


def compile_before_workers(
    plan: CompilePlan, crew: Crew, prepared: Prepared, config: Config, progress: Progress, stop: StopRequest
) -> None:
    """Raises StopAsked between two graphs: there is nothing to save yet."""

    def on_item(number: int, item: CompileItem) -> None:
        stop.leave_if_asked()
        progress.compiling(number - 1, len(plan.items))
        progress.say(f"compiling {number} of {len(plan.items)}: {item}")

    first_on = {str(one.device): one for one in reversed(crew.replicas)}
    drafters = {device: one.drafter for device, one in first_on.items()}
    ends = {device: one.ends for device, one in first_on.items()}
    crew.compile_in_turn(
        lambda: compile_all(plan, drafters, ends, prepared.vocabulary.mask_id, config, on_item), progress
    )
    items = [dataclasses.asdict(item) for item in plan.items]
    progress.runtime({"compile_plan": {"dynamic": plan.dynamic, "graphs": plan.least_graphs, "items": items}})
    every = crew.gather(compile_facts(plan, Seal(strict=False)))
    progress.compiled(add_counts(every))
    for number, counts in enumerate(every):
        if counts and crew.leads:
            progress.say(
                f"compiled by process {number} of the drafters: {counts['compiles']} graphs, "
                f"{counts['cache_hits']} found in the cache, {counts['cache_misses']} not"
            )


def compile_facts(plan: CompilePlan, seal: Seal) -> Dict[str, int]:
    return dataclasses.asdict(seal.counts()) if plan.items else {}


@dataclasses.dataclass(frozen=True)
class Shared:
    """What one process of drafters knows of its part, for a line of the log."""

    outcomes: List[Dict[str, Any]]
    waits: Waits
    compiled: Dict[str, int]
    drafter_peaks_mib: Optional[List[float]]
    target_peaks_mib: Optional[List[float]]

    @staticmethod
    def of(learned: List[Learned], feed: Queues, compiled: Dict[str, int]) -> Shared:
        """Waits for the devices."""
        outcomes = [part.outcome.facts() for part in learned if part.outcome is not None]
        return Shared(outcomes, feed.waits(), compiled, peak_memory_mib(), feed.target_peaks_mib())


def line_facts(every: Sequence[Shared], course: Course, elapsed_s: float) -> Dict[str, Any]:
    """Waits are those of a drafter and of a target on average, as shares of the time."""
    elapsed_s = max(elapsed_s, 1e-9)
    facts = {
        **mean_facts([facts for one in every for facts in one.outcomes]),
        "drafter_wait_share": sum(one.waits.get_s for one in every) / course.replicas / elapsed_s,
        "target_wait_share": sum(one.waits.put_s for one in every) / course.targets / elapsed_s,
        "queue_bytes": sum(one.waits.bytes_held for one in every),
    }
    if every[0].target_peaks_mib is not None:  # of one process a device; in the devices' order
        of_drafters = [peak for one in every for peak in one.drafter_peaks_mib or []]
        facts["peak_memory_mib"] = [*every[0].target_peaks_mib, *of_drafters]
    return facts


def add_counts(every: Iterable[Dict[str, int]]) -> Dict[str, int]:
    total: Dict[str, int] = {}
    for counts in every:
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return total
