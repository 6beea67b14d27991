"""The drafter's training loop.

Rule: reads top to bottom; a step is a function of the batch and the state before it, and of nothing else, so a run
resumed from a checkpoint equals the uninterrupted one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Optional

import contract
import torch
from checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from config import Config
from drafter import Drafter
from feed import Batch, TargetThread
from forward import step_loss
from loss import BlockLoss
from optimise import NotANumber, Optimisation, TrainingError, check_gradients
from prepare import Prepared
from progress import Progress
from queues import ByteQueue
from stopping import StopRequest

THREAD_END_S = 60.0


def train_drafter(
    config: Config,
    folder: Path,
    prepared: Prepared,
    drafter: Drafter,
    resumed: Optional[Checkpoint],
    progress: Progress,
    stop: StopRequest,
) -> bool:
    """True when all steps are done, False when stopped before; a checkpoint is saved either way.

    Raises TrainingError, and whatever went wrong in the target thread.
    """
    optimisation = Optimisation(drafter, config)
    step = 0
    if resumed is not None:
        drafter.load_state_dict(resumed.weights)
        optimisation.load_state(resumed.optimisation)
        torch.set_rng_state(resumed.random_state)
        step = resumed.step
    first_step = step + 1

    def save() -> None:
        save_checkpoint(
            folder / contract.CHECKPOINTS,
            step=step,
            drafter=drafter,
            optimisation=optimisation.state(),
            config=config,
            prepared=prepared.folder,
            chapters=prepared.chapters,
            keep=config.checkpoint.keep,
        )

    queue: ByteQueue[Batch] = ByteQueue(int(config.queue.max_mib * 2**20))
    target_thread = TargetThread(queue, prepared, config, first_step)
    progress.start_training(step, config.steps)
    began = time.monotonic()
    target_thread.start()
    try:
        drafter.train()
        while step < config.steps and not stop.asked:
            loss, tokens, rows = 0.0, 0, []
            for _ in range(config.train.accumulation):
                batch = queue.get()
                outcome = step_loss(batch, prepared.target, drafter, prepared.vocabulary.mask_id, config)
                rows += batch.rows
                loss += optimisation.accumulate(outcome.loss)
                tokens += batch.token_count
            if batch.step == first_step:
                check_gradients(drafter)
            gradient_norm = optimisation.step()
            step = batch.step

            progress.step(step, config.steps, tokens, loss)
            if step % config.log.every_steps == 0 or step in (first_step, config.steps):
                facts = line_facts(outcome, gradient_norm, optimisation.learning_rate, queue, began)
                progress.line(step, config.steps, loss, facts)
            if step % config.checkpoint.every_steps == 0 and step < config.steps:
                progress.phase("checkpointing")
                save()
                progress.phase("training")
    except NotANumber as error:
        known = last_checkpoint(folder / contract.CHECKPOINTS)
        raise TrainingError(
            f"step {step + 1}: {error}; rows {rows}; last good checkpoint: {known or 'none'}"
        ) from error
    finally:
        queue.close()
        target_thread.join(THREAD_END_S)

    progress.phase("stopping" if stop.asked else "checkpointing")
    save()
    progress.say(f"checkpoint: {folder / contract.CHECKPOINTS / f'step-{step}'}")
    return not stop.asked


def line_facts(
    outcome: BlockLoss, gradient_norm: float, learning_rate: float, queue: ByteQueue[Batch], began: float
) -> Dict[str, Any]:
    elapsed_s = max(time.monotonic() - began, 1e-9)
    return {
        "accuracy": float(outcome.accuracy),
        "simulated_acceptance": float(outcome.simulated_acceptance),
        "gradient_norm": gradient_norm,
        "learning_rate": learning_rate,
        "drafter_wait_share": queue.get_wait_s / elapsed_s,
        "target_wait_share": queue.put_wait_s / elapsed_s,
        "queue_bytes": queue.bytes_held,
    }
