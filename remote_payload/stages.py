"""What a run goes through, from its devices to the exported drafter.

Rule: it reads top to bottom in `go_through`, the training's steps in loop.py; what each line does is in the module it
names.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, Optional

import contract
import fx_guard
import torch
from checkpoint import Checkpoint, load_checkpoint
from config import ConfigError, differences_that_forbid_resume
from data import data_facts
from devices import Placement, alike, place
from drafter import Drafter
from evaluate import evaluate
from export import check_is_start, export
from links import Links, Member
from loop import Task, new_drafter, train_drafter
from prepare import Prepared, another_target, prepare
from runtime import runtime_facts
from start import Run
from stopping import StopAsked


def go_through(run: Run, member: Optional[Member]) -> int:
    """The exit code. member: as train.carry_out has it.

    Raises ConfigError, DataError, StopAsked before there is a checkpoint, and what train_drafter raises.
    """
    config, spec, progress = run.config, run.spec, run.progress
    run.stop.leave_if_asked()
    placement = placement_of(run, member)
    progress.start_part("imports")
    tell_machine(run, placement, alone=member is not None)
    resumed = checkpoint_to_resume(run, placement.device)
    if resumed is None:
        check_start(config.drafter.start_from)
    progress.phase("preparing")
    torch.set_num_threads(config.threads)
    prepared = prepare(run, resumed=resumed, device=placement.device)
    torch.set_num_threads(config.threads)
    progress.runtime({"data": data_facts(prepared.folder)})
    drafter = new_drafter(config, prepared, placement.drafters[0], resumed)
    if config.drafter.start_from and resumed is None:
        progress.say(f"drafter: starts from the weights in {config.drafter.start_from}")
    progress.say(
        f"drafter: {sum(p.numel() for p in drafter.parameters()):,} parameters, reads target layers "
        f"{prepared.target.layer_ids}, {len(prepared.rows)} rows"
    )
    links = None if member is None else join_others(run, member, prepared)
    progress.start_part("load")
    task = Task(run, prepared, drafter, resumed, placement, links)
    finished = train_drafter(task, only_compile=spec.warmup)
    if links is not None:
        links.close()
    if spec.warmup:
        progress.phase("done", "compiled what a run will ask for")
        return contract.EXIT_OK
    try:
        if not finished:
            raise StopAsked
        result = evaluate_and_export(task)
    except StopAsked:
        progress.phase(contract.PHASE_STOPPING, "checkpoint saved")
        return contract.EXIT_STOPPED_WITH_CHECKPOINT
    progress.result({"steps": config.steps, **result})
    progress.phase("done")
    progress.say(f"acceptance length: {result['acceptance_length']:.2f}")
    return contract.EXIT_OK


def placement_of(run: Run, member: Optional[Member]) -> Placement:
    if member is None:
        return place(run.config.device, targets=run.spec.targets, drafters=run.spec.drafters)
    return alike(member.device, targets=member.targets, drafters=member.drafters)


def tell_machine(run: Run, placement: Placement, *, alone: bool) -> None:
    """alone: this process sees one device."""
    run.progress.say(placement.note)
    run.progress.runtime({**runtime_facts(placement, alone=alone), "engine": "processes" if alone else "threads"})
    untested = fx_guard.untested(torch.__version__)
    if untested is not None:
        run.progress.warn(untested)


def checkpoint_to_resume(run: Run, device: torch.device) -> Optional[Checkpoint]:
    """None: the run begins anew. Raises ConfigError."""
    if run.spec.resume_from is None:
        return None
    resumed = load_checkpoint(Path(run.spec.resume_from), device)
    differences = differences_that_forbid_resume(resumed.settings, run.config.flat())
    if differences:
        raise ConfigError("this run cannot resume that checkpoint:\n  " + "\n  ".join(differences))
    run.progress.say(f"resumes after step {resumed.step} of {run.spec.resume_from}")
    return resumed


def check_start(start_from: Optional[str]) -> None:
    """Long before it is loaded. Raises ConfigError."""
    if not start_from:
        return
    try:
        check_is_start(Path(start_from))
    except ValueError as error:
        raise ConfigError(f"drafter.start_from: {error}") from None


def join_others(run: Run, member: Member, prepared: Prepared) -> Links:
    """The leader's targets have processes of their own: its layers make room."""
    prepared.target.forget_layers()
    member.say_prepared()
    links = member.join()
    run.progress.runtime({"ranks": links.introduce()})
    return links


def evaluate_and_export(task: Task) -> Dict[str, Any]:
    """The result record. Raises StopAsked."""
    run, prepared, device = task.run, task.prepared, task.placement.device
    if task.links is not None:
        prepared = dataclasses.replace(prepared, target=another_target(prepared, device))
    untrained = Drafter(task.drafter.shape, seed=run.config.seed).to(device)
    # As it is served: in the target's own precision.
    precision = prepared.target.embed.weight.dtype
    drafter, untrained = (one.to(device, precision) for one in (task.drafter, untrained))
    result = evaluate(run, prepared, drafter, untrained)
    export(run.folder / contract.EXPORT, drafter, prepared, run.config, result)
    run.progress.say(f"exported: {run.folder / contract.EXPORT}")
    return result
