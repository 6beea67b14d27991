"""Trains a DFlash drafter: `python train.py`, in a run's folder given by ORCH_RUN_DIR or in one of its own (start.py).

Rule: the whole run reads top to bottom in `run`, its steps in loop.py; what each line does is in the module it names.

Shutdown order: the first SIGTERM lets the current step end; the queue is closed, which ends the target thread; the
drafter saves a checkpoint; exit code 3. Before there is anything to save, a stop leaves with 143. A second SIGTERM ends
the process at once.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Mapping, Optional, Sequence

import contract
from config import Config, ConfigError, differences_that_forbid_resume, resolve, to_yaml
from progress import Progress
from ranks import Rank, ranks_of
from samples import DataError
from start import find_run, layers_of, read_command_line, spec_of
from stopping import StopAsked, StopRequest
from supervisor import supervise
from trackers import open_trackers
from watchdog import Watchdog

if TYPE_CHECKING:
    from links import Links, Member


def main(arguments: Optional[Sequence[str]] = None) -> int:
    asked = read_command_line(sys.argv[1:] if arguments is None else arguments)
    if asked.plan:
        return plan(asked)
    stop = StopRequest()
    stop.install()
    try:
        folder, spec = find_run(asked)
    except (OSError, ValueError) as error:
        print(f"the run's folder: {error}", file=sys.stderr, flush=True)
        return contract.EXIT_BAD_CONFIG
    progress = Progress(folder)
    progress.phase("loading")

    def work() -> int:
        config, places = resolve(*layers_of(asked, spec))
        ranks = ranks_for(config, spec)
        if ranks:
            return supervise(config, places, spec, folder, ranks, progress, stop)
        with Watchdog(progress, config.watchdog):
            return run(config, places, spec, folder, progress, stop)

    return answer_for(work, progress)


def ranks_for(config: Config, spec: contract.RunSpec) -> List[Rank]:
    """The processes of the engine `processes`; none of the engine `threads`. Raises ConfigError, DeviceError."""
    if config.engine == "threads" or (config.engine == "auto" and config.device == "cpu"):
        return []
    if config.device == "cpu":
        return ranks_of(spec.targets, spec.drafters, on_gpus=False)
    from devices import choose_engine, place

    placement = place(config.device, targets=spec.targets, drafters=spec.drafters)
    if choose_engine(config.engine, placement) == "threads":
        return []
    on_gpus = placement.device.type == "cuda"
    return ranks_of(
        len(placement.targets),
        len(placement.drafters),
        on_gpus=on_gpus,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def answer_for(work: Callable[[], int], progress: Progress) -> int:
    """The exit code of whatever comes of it; what went wrong is in the log and in the status."""
    try:
        return work()
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr, flush=True)
        progress.phase("failed", f"configuration: {error}")
        return contract.EXIT_BAD_CONFIG
    except DataError as error:
        print(f"data: {error}", file=sys.stderr, flush=True)
        progress.phase("failed", f"data: {error}")
        return contract.EXIT_BAD_CONFIG
    except StopAsked:
        progress.say("stopped before the first checkpoint: nothing to resume from")
        progress.phase(contract.PHASE_STOPPING, "stopped before the first checkpoint")
        return contract.EXIT_STOPPED_EMPTY_HANDED
    except Exception as error:
        traceback.print_exc()
        progress.phase("failed", f"{type(error).__name__}: {error}")
        return contract.EXIT_FAILED


def plan(asked: Namespace) -> int:
    """Prints what would be run, and makes nothing."""
    folder = contract.run_dir()
    try:
        spec = contract.read_run_spec(folder) if folder is not None else spec_of(asked)
        config, places = resolve(*layers_of(asked, spec))
        from preview import preview

        print("\n".join([*settings_lines(config, places), *preview(config, spec)]))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"plan: {error}", file=sys.stderr, flush=True)
        return contract.EXIT_BAD_CONFIG
    return contract.EXIT_OK


def settings_lines(config: Config, places: Mapping[str, str]) -> List[str]:
    """Every setting, and where it was written if it is no default."""
    return [
        f"  {name} = {value}" + (f"   ({places[name]})" if name in places else "")
        for name, value in config.flat().items()
    ]


def run(
    config: Config,
    places: Mapping[str, str],
    spec: contract.RunSpec,
    folder: Path,
    progress: Progress,
    stop: StopRequest,
    member: Optional[Member] = None,
) -> int:
    """member: this is the leader of a run with one process a device; the others wait for what it prepares."""
    progress.say(f"run {spec.run_id} in {folder}")
    for line in settings_lines(config, places):
        progress.say(line)
    (folder / contract.CONFIG).write_text(to_yaml(config), encoding="utf-8")

    progress.trackers += open_trackers(config.log, folder, spec.run_id)
    # Heavy imports come after the settings are known to be right.
    import fx_guard
    import torch
    from checkpoint import Checkpoint, load_checkpoint
    from data import data_facts
    from devices import alike, place
    from drafter import Drafter
    from evaluate import evaluate
    from export import check_is_start, export
    from loop import Task, new_drafter, train_drafter
    from prepare import another_target, prepare
    from runtime import runtime_facts

    stop.leave_if_asked()
    if member is None:
        placement = place(config.device, targets=spec.targets, drafters=spec.drafters)
    else:
        placement = alike(member.device, targets=member.targets, drafters=member.drafters)
    progress.start_part("imports")
    progress.say(placement.note)
    alone = member is not None
    progress.runtime({**runtime_facts(placement, alone=alone), "engine": "processes" if alone else "threads"})
    untested = fx_guard.untested(torch.__version__)
    if untested is not None:
        progress.warn(untested)

    resumed: Optional[Checkpoint] = None
    if spec.resume_from is not None:
        resumed = load_checkpoint(Path(spec.resume_from), placement.device)
        differences = differences_that_forbid_resume(resumed.settings, config.flat())
        if differences:
            raise ConfigError("this run cannot resume that checkpoint:\n  " + "\n  ".join(differences))
        progress.say(f"resumes after step {resumed.step} of {spec.resume_from}")

    if config.drafter.start_from and resumed is None:
        try:
            check_is_start(Path(config.drafter.start_from))
        except ValueError as error:
            raise ConfigError(f"drafter.start_from: {error}") from None
    progress.phase("preparing")
    torch.set_num_threads(config.threads)
    prepared = prepare(
        config,
        folder,
        spec=spec,
        resumed=resumed,
        device=placement.device,
        progress=progress,
        stop=stop,
    )
    torch.set_num_threads(config.threads)
    progress.runtime({"data": data_facts(prepared.folder)})
    drafter = new_drafter(config, prepared, placement.drafters[0], resumed)
    if config.drafter.start_from and resumed is None:
        progress.say(f"drafter: starts from the weights in {config.drafter.start_from}")
    progress.say(
        f"drafter: {sum(p.numel() for p in drafter.parameters()):,} parameters, reads target layers "
        f"{prepared.target.layer_ids}, {len(prepared.rows)} rows"
    )

    links: Optional[Links] = None
    if member is not None:
        prepared.target.forget_layers()
        member.say_prepared()
        links = member.join()
        progress.runtime({"ranks": links.introduce()})
    progress.start_part("load")
    task = Task(config, folder, prepared, drafter, resumed, placement, progress, stop, links)
    finished = train_drafter(task, only_compile=spec.warmup)
    if links is not None:
        links.close()
    if spec.warmup:
        progress.phase("done", "compiled what a run will ask for")
        return contract.EXIT_OK
    try:
        if not finished:
            raise StopAsked
        if member is not None:
            prepared = dataclasses.replace(prepared, target=another_target(prepared, placement.device))
        untrained = Drafter(drafter.shape, seed=config.seed).to(placement.device)
        # As it is served: in the target's own precision.
        drafter, untrained = (
            one.to(placement.device, prepared.target.embed.weight.dtype) for one in (drafter, untrained)
        )
        result = evaluate(config, prepared, drafter, untrained, progress, stop)
    except StopAsked:
        progress.phase(contract.PHASE_STOPPING, "checkpoint saved")
        return contract.EXIT_STOPPED_WITH_CHECKPOINT
    export(folder / contract.EXPORT, drafter, prepared, config, result)
    progress.say(f"exported: {folder / contract.EXPORT}")
    progress.result({"steps": config.steps, **result})
    progress.phase("done")
    progress.say(f"acceptance length: {result['acceptance_length']:.2f}")
    return contract.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
