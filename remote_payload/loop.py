"""The drafter's training loop.

Rule: reads top to bottom; a step is a function of the batches and the state before it, and of nothing else, so a run
resumed from a checkpoint equals the uninterrupted one.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import contract
import torch
from checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from config import Config
from devices import Placement
from drafter import Drafter
from feed import Course, Feed
from forward import Ends, ends_on
from meter import AcceptanceSince, PhaseTimes, mean_facts
from optimise import NotANumber, TrainingError, check_gradients
from plan import CompileItem, CompilePlan, compile_plan
from prepare import Prepared, another_target
from progress import Progress
from sealing import EagerFallback, Recompiled, Seal
from stopping import StopRequest
from warmup import compile_all
from workers import Crew, Learned, Replica, mean

THREAD_END_S = 60.0


def train_drafter(
    config: Config,
    folder: Path,
    prepared: Prepared,
    drafter: Drafter,
    resumed: Optional[Checkpoint],
    placement: Placement,
    progress: Progress,
    stop: StopRequest,
) -> bool:
    """True when all steps are done, False when stopped before; a checkpoint is saved either way.

    Raises TrainingError, and whatever went wrong in a target's or a replica's thread.
    """
    step = 0
    if resumed is not None:
        drafter.load_state_dict(resumed.weights)
        torch.set_rng_state(resumed.random_state)
        step = resumed.step
    first_step = step + 1
    crew = Crew(make_replicas(config, prepared, drafter, resumed, placement), config.threads)
    seal = Seal(strict=config.compile.strict)
    course = Course(
        first_step=first_step,
        last_step=config.steps,
        batches_met=resumed.batches_met if resumed else 0,
        parts=config.train.accumulation,
        replicas=len(placement.drafters),
        targets=len(placement.targets),
    )

    phases, accepted = PhaseTimes(), AcceptanceSince()

    def save() -> None:
        crew.check_equal(step)
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
            acceptance=accepted.take(),
        )

    plan = compile_plan(config, prepared.width, [str(device) for device in placement.drafters])
    compile_before_workers(plan, crew, prepared, config, progress, stop)
    seal.close()
    feed = Feed(course, targets_for(prepared, placement), placement.drafters, config)
    for replica, queues in zip(crew.replicas, feed.queues, strict=True):
        replica.queues = queues
    progress.start_training(step, config.steps)
    began = time.monotonic()
    feed.start()
    rows: List[int] = []
    try:
        drafter.train()
        while step < config.steps and not stop.asked:
            now = step + 1
            with phases("learn"):  # waiting for batches, forward, backward
                learned = crew.each(lambda replica, now=now: replica.learn(now, course))  # type: ignore[misc]
            rows = [row for part in learned for row in part.rows]
            accepted.add(part.outcome for part in learned)
            with phases("average"):
                crew.average_gradients()
            if now == first_step:
                check_gradients(drafter)
            with phases("optimise"):
                gradient_norm = crew.each(lambda replica: replica.optimisation.step())[0]
            phases.step_done()
            step = now

            loss = mean([part.loss for part in learned]) or 0.0
            progress.step(step, config.steps, sum(part.tokens for part in learned), loss)
            if seal.look():
                progress.say(f"step {step}: compiled what was not planned: {seal.counts()}")
            if step % config.log.every_steps == 0 or step in (first_step, config.steps):
                facts = line_facts(learned, gradient_norm, crew.replicas[0].optimisation.learning_rate, feed, began)
                progress.line(step, config.steps, loss, {**facts, **phases.take(), **compile_facts(plan, seal)})
                progress.compiled(compile_facts(plan, seal))
            if step % config.checkpoint.every_steps == 0 and step < config.steps:
                progress.phase("checkpointing")
                save()
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

    progress.phase("stopping" if stop.asked else "checkpointing")
    save()
    progress.say(f"checkpoint: {folder / contract.CHECKPOINTS / f'step-{step}'}")
    return not stop.asked


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
            replica.optimisation.load_state(resumed.optimisation)
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
    compile_all(plan, drafters, ends, prepared.vocabulary.mask_id, config, on_item)


def compile_facts(plan: CompilePlan, seal: Seal) -> Dict[str, int]:
    return dataclasses.asdict(seal.counts()) if plan.items else {}


def line_facts(
    learned: List[Learned], gradient_norm: float, learning_rate: float, feed: Feed, began: float
) -> Dict[str, Any]:
    elapsed_s = max(time.monotonic() - began, 1e-9)
    return {
        **mean_facts([part.outcome for part in learned]),
        "gradient_norm": gradient_norm,
        "learning_rate": learning_rate,
        "drafter_wait_share": feed.drafter_wait_s / elapsed_s,
        "target_wait_share": feed.target_wait_s / elapsed_s,
        "queue_bytes": feed.bytes_held,
    }
