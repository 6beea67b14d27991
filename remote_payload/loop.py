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
from stopping import StopRequest
from warmup import compile_all
from workers import Crew, Learned, Replica, mean

THREAD_END_S = 60.0
LEAST_TO_JUDGE = 20
"""Batches over which the simulated acceptance of a checkpoint is taken, before it may be called the best."""


def train_drafter(
    config: Config,
    folder: Path,
    prepared: Prepared,
    drafter: Drafter,
    resumed: Optional[Checkpoint],
    placement: Placement,
    progress: Progress,
    stop: StopRequest,
    links: Optional[Links] = None,
    *,
    only_compile: bool = False,
) -> bool:
    """links: to the other processes of the run, where it has any; then this one's drafter is one of several.
    only_compile: return when all is compiled, before the first batch.

    True when all steps are done, False when stopped before; a checkpoint is saved either way.

    Raises TrainingError, NotSaved of the last checkpoint, and whatever went wrong in a target's or a replica's thread.
    """
    step = 0
    if resumed is not None:
        drafter.load_state_dict(resumed.weights)
        torch.set_rng_state(resumed.random_state)
        step = resumed.step
    first_step = step + 1
    seal = Seal(strict=config.compile.strict)
    course = course_of(config, resumed, placement)
    crew, feed = workers_of(config, prepared, drafter, resumed, placement, course, stop, links)

    phases, accepted = PhaseTimes(), AcceptanceSince()

    def save() -> None:
        crew.check_equal(step)
        acceptance = mean(
            [
                one
                for one in crew.gather(accepted.take(least=min(LEAST_TO_JUDGE, config.checkpoint.every_steps)))
                if one is not None
            ]
        )
        if not crew.leads:
            return
        save_checkpoint(
            folder / contract.CHECKPOINTS,
            step=step,
            drafter=drafter,
            optimisation=crew.replicas[0].optimisation.state(),
            config=config,
            prepared=prepared.folder,
            chapters=prepared.chapters,
            batches_met=course.met_after(step),
            keep=config.checkpoint.keep,
            acceptance=acceptance,
            target=prepared.target_identity,
        )

    plan = compile_plan(config, prepared.width, [str(device) for device in placement.drafters])
    compile_before_workers(plan, crew, prepared, config, progress, stop)
    progress.start_part("compile")
    if only_compile:
        crew.close()
        return True
    seal.close()
    for replica, queues in zip(crew.replicas, feed.queues, strict=True):
        replica.queues = queues
    progress.start_training(step, config.steps)
    began = time.monotonic()
    feed.start()
    rows: List[int] = []
    try:
        drafter.train()
        while step < config.steps and not crew.stop_asked(stop):
            now = step + 1
            with phases("learn"):  # waiting for batches, forward, backward
                learned = crew.learn(now, course, seal)
            rows = [row for part in learned for row in part.rows]
            accepted.add(part.outcome for part in learned if part.outcome is not None)
            with phases("average"):
                crew.average_gradients()
            if now == first_step:
                check_gradients(drafter)
            with phases("optimise"):
                gradient_norm = crew.each(lambda replica: replica.optimisation.step())[0]
            phases.step_done()
            step = now
            if step == first_step:
                progress.start_part("step")

            loss = mean([part.loss for part in learned]) or 0.0
            progress.step(step, config.steps, sum(part.tokens for part in learned), loss)
            if any(part.compiled for part in learned):
                progress.say(f"step {step}: compiled what was not planned: {seal.counts()}")
            if step % config.log.every_steps == 0 or step in (first_step, config.steps):
                every = crew.gather(Shared.of(learned, feed, compile_facts(plan, seal)))
                counts = add_counts(one.compiled for one in every)
                facts = line_facts(every, course, time.monotonic() - began)
                facts["gradient_norm"] = gradient_norm
                facts["learning_rate"] = crew.replicas[0].optimisation.learning_rate
                progress.line(step, config.steps, loss, {**facts, **phases.take(), **counts})
                progress.compiled(counts)
                if counts.get("tracing_stuck"):
                    progress.warn(fx_guard.STUCK)
                progress.waits({"target": facts["target_wait_share"], "drafter": facts["drafter_wait_share"]})
            if step % config.checkpoint.every_steps == 0 and step < config.steps:
                progress.phase("checkpointing")
                try:
                    save()
                except NotSaved as error:  # the disk may have room again at the next one
                    progress.warn(str(error))
                progress.phase("training")
    except NotANumber as error:
        known = last_checkpoint(folder / contract.CHECKPOINTS)
        where = str(error) if "rows" in str(error) else f"{error}; rows {rows}"
        raise TrainingError(f"step {step + 1}: {where}; last good checkpoint: {known or 'none'}") from error
    except (EagerFallback, Recompiled) as error:
        progress.compiled(compile_facts(plan, seal))
        if step >= first_step:
            save()
        raise TrainingError(f"after step {step}, which is saved: {error}") from error
    finally:
        feed.close(THREAD_END_S)
        crew.close()

    stopped = crew.stop_asked(stop)
    progress.phase("stopping" if stopped else "checkpointing")
    save()
    if crew.leads:
        progress.say(f"checkpoint: {folder / contract.CHECKPOINTS / f'step-{step}'}")
    return not stopped


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


def workers_of(
    config: Config,
    prepared: Prepared,
    drafter: Drafter,
    resumed: Optional[Checkpoint],
    placement: Placement,
    course: Course,
    stop: StopRequest,
    links: Optional[Links],
) -> Tuple[Crew, Queues]:
    """Either engine's. With links: this process's replica, and what its targets send it."""
    if links is None:
        crew = Crew(make_replicas(config, prepared, drafter, resumed, placement), config.threads)
        return crew, Feed(course, targets_for(prepared, placement), placement.drafters, config)
    ends = ends_on(links.device, prepared.target)
    replica = Replica(links.rank.index, drafter, ends, prepared.vocabulary.mask_id, config)
    if resumed is not None:
        replica.optimisation.load_state(resumed.optimisation)
    width = drafter.shape.selected_layers * drafter.shape.hidden_size
    features = torch.empty(0, width, dtype=ends.embed.weight.dtype, device=links.device)
    return RankCrew(replica, links, config.threads, stop), Handoff(course, prepared, config, links, features)


def make_replicas(
    config: Config, prepared: Prepared, drafter: Drafter, resumed: Optional[Checkpoint], placement: Placement
) -> List[Replica]:
    """The first has the given drafter, the others copies of it on their devices."""
    ends: Dict[torch.device, Ends] = {}
    replicas = []
    for number, device in enumerate(placement.drafters):
        if device not in ends:
            ends[device] = ends_on(device, prepared.target)
        own = drafter if number == 0 else copy.deepcopy(drafter).to(device)
        replica = Replica(number, own, ends[device], prepared.vocabulary.mask_id, config)
        if resumed is not None:
            # An optimizer keeps the very tensors it is given: two that share them take every step twice.
            own_state = resumed.optimisation if number == 0 else copy.deepcopy(resumed.optimisation)
            replica.optimisation.load_state(own_state)
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
